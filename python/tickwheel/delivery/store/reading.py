"""A store as those see it who only look at it: reports and analyses. It may be in use, and is left as it was.

Who looks at a SQLite file in this mode takes part in its locks, in a `-wal` and a `-shm` file beside it. So it depends:

- There is a log (`-wal`): the store is in use, or its last user crashed. It is opened for reading alone, so that what
  a crash left stays as it is. A deliverer neither waits nor is waited for.
- There is none: nobody uses it, and all is in the one file. SQLite makes both files for us, but only who may write
  takes them away again. So it is opened for writing and told not to write.
- There is none, and we may not write there: it is read as a file that never changes, which needs no locks. If somebody
  changes it after all, what was read is of no use, and that is an error.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tickwheel.delivery.errors import StoreFailed, WrongUsage
from tickwheel.delivery.store.owner import refuse_network
from tickwheel.delivery.store.schema import check_store, no_store


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """One snapshot of the store, for as long as the block runs; texts that are none come with U+FFFD.

    Errors: `WrongUsage` if there is no store that this version knows, or not on a local disk; `StoreFailed`.
    """
    if not path.is_file():
        raise WrongUsage(f"there is no store {path}: name the file that was given to --store")
    file = path.resolve()
    refuse_network(file.parent)
    how = _how(file)
    before = _stamp(file)
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?{how}", uri=True, isolation_level=None)) as db:
            db.text_factory = _text
            db.execute("PRAGMA query_only = 1")
            db.execute("PRAGMA temp_store = FILE")  # sorting takes disk, not memory
            db.execute("BEGIN")
            check_store(db, path)
            yield db
        if how == _ALONE and _stamp(file) != before:
            raise _changed(path)
    except sqlite3.Error as error:
        if how == _ALONE and _stamp(file) != before:
            raise _changed(path) from error
        if getattr(error, "sqlite_errorname", None) == "SQLITE_NOTADB":
            raise no_store(path) from error
        raise StoreFailed.because(path, error) from error


_SHARED, _TIDY, _ALONE = "mode=ro", "mode=rw", "mode=ro&immutable=1"


def _how(file: Path) -> str:
    if any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal")):  # -journal: not ours
        return _SHARED
    return _TIDY if os.access(file, os.W_OK) and os.access(file.parent, os.W_OK) else _ALONE


def _stamp(file: Path) -> tuple[int, ...] | None:
    """Another one after a change; `None` if it is gone."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _changed(path: Path) -> StoreFailed:
    return StoreFailed(f"the store {path} was changed while it was read, where it can't be locked: run again")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
