"""The tables of the store, one SQLite file, and how it is opened.

| table | one row for | written |
|---|---|---|
| `messages` | every message that is known: its name, due time and content | at the end, at acceptance |
| `bodies` | the payload of one that waits | at the end; removed in bulk some time after its outcome |
| `waiting` | one without an outcome, by due time | at its due time; removed with its outcome |
| `ledger` | one that has its outcome | at the end |
| `ids` | every known message by the number of its name | in bulk, see `ids.py` |
| `cancels` | a cancel whose message has not come | rarely |
| `inputs` | how far an input was read | with what was read |
| `dead_letters` | what could not be read or delivered | rarely |
| `meta` | a value by name | rarely |

What is written for every message goes to the end of a table or to a few neighbouring pages, because a page that is
touched costs as much as twenty rows: it goes to the write-ahead log whole, and once more to its place.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tickwheel.delivery.errors import StoreFailed, WrongUsage

_APPLICATION_ID = 0x7469636B  # "tick", at byte 68 of the file

_STEPS: Sequence[str] = (
    """
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY,
        name INTEGER NOT NULL,
        due_ms INTEGER NOT NULL,
        key TEXT,
        id TEXT NOT NULL,
        content BLOB NOT NULL,
        outcome INTEGER -- where it is not delivery
    );
    CREATE TABLE bodies (seq INTEGER PRIMARY KEY, payload NOT NULL); -- TEXT: JSON; BLOB: other bytes
    CREATE TABLE waiting (
        due_ms INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        lane INTEGER, -- the number of the key; NULL: no key
        size INTEGER NOT NULL, -- bytes in memory
        redelivered INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (due_ms, seq)
    ) WITHOUT ROWID;
    CREATE TABLE ledger (
        n INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        outcome INTEGER NOT NULL, -- 1 delivered, 2 cancelled, 3 dead letter
        at_ms INTEGER NOT NULL,
        lateness_us INTEGER,
        attempts INTEGER NOT NULL,
        redelivered INTEGER NOT NULL
    );
    CREATE TABLE ids (name INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (name, seq)) WITHOUT ROWID;
    CREATE TABLE cancels (
        name INTEGER NOT NULL, key TEXT, id TEXT NOT NULL, at_ms INTEGER NOT NULL,
        until_ms INTEGER NOT NULL -- it is kept so long, even where ids are not
    );
    CREATE INDEX cancels_by_name ON cancels (name);
    CREATE TABLE inputs (source TEXT PRIMARY KEY, line INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL);
    CREATE TABLE dead_letters (
        n INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        source TEXT NOT NULL,
        line INTEGER NOT NULL,
        reason TEXT NOT NULL,
        allowed TEXT NOT NULL,
        record BLOB NOT NULL
    );
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16))));
    """,
)
"""Each takes a store from one version to the next; a new store goes through all of them."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the store, and make it or bring it up to date where needed. Errors: `WrongUsage`, `StoreFailed`."""
    try:
        db = sqlite3.connect(path.absolute(), isolation_level=None, cached_statements=128, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreFailed.because(path, error) from error
    try:
        _set_up(db, path)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise StoreFailed.because(path, error) from error
        raise
    return db


def check_store(db: sqlite3.Connection, path: Path) -> None:
    """Errors: `WrongUsage` if this is no store, or of a version that can't be read as it is."""
    version = _version(db, path)
    if version is None:
        raise no_store(path)
    if version < len(_STEPS):
        raise WrongUsage(
            f"{path} was made by an earlier version of tickwheel ({version}, this one reads {len(_STEPS)}): "
            "deliver with it once, which brings it up to date"
        )


def no_store(path: Path) -> WrongUsage:
    """Of a file that is no store, where one is asked for."""
    return WrongUsage(f"{path} is not a store of tickwheel: name the file that was given to --store")


def _version(db: sqlite3.Connection, path: Path) -> int | None:
    """`None` if it is not a store. Errors: `WrongUsage` if it is of a later version than this."""
    [(application_id,)] = db.execute("PRAGMA application_id")
    if application_id != _APPLICATION_ID:
        return None
    [(version,)] = db.execute("PRAGMA user_version")
    if version > len(_STEPS):
        raise WrongUsage(
            f"{path} was made by a later version of tickwheel ({version}, this one knows {len(_STEPS)}): "
            "go on with that version, or name another file"
        )
    return int(version)


def _set_up(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db, path)
    if version is None:
        [(tables,)] = db.execute("SELECT count(*) FROM sqlite_master")
        if tables:
            raise WrongUsage(f"{path} is a database of another program: name another file")
        version = 0  # a new file
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # they are the writer's, see `housekeeping.py`
    db.execute("PRAGMA cache_size = -16000")
    for number, step in enumerate(_STEPS[version:], version + 1):
        db.executescript(f"""
            BEGIN IMMEDIATE; {step}
            PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {number};
            COMMIT;
        """)
