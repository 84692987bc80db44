//! The tables of the store in its one SQLite file, and how the file is opened.
//!
//! | table | one row for | written |
//! |---|---|---|
//! | `messages` | every known message: its name, due time and content | at the end, at acceptance |
//! | `bodies` | an open message: its payload, and parts that few messages have | at the end; removed by ranges some time after the outcome |
//! | `waiting` | an open message that is not *near*, see `open/near.rs` | at its due time; removed with its outcome |
//! | `ledger` | a message with an outcome | at the end |
//! | `runs` | a table `run_N` with known names, see `names/runs.rs` | after the last row of that table |
//! | `filters` | a part of the filter of such a table | before that row |
//! | `attempts` | an open message that failed at least once, or has strikes | at its number |
//! | `destinations` | a named destination, with its settings | rarely |
//! | `waits` | an open message that waits for an event, or did; with its number as key | at the end; removed with its outcome |
//! | `events` | a known event | at the end |
//! | `tenants` | the name of a tenant, with its settings if it has some; it stays | at the end |
//! | `cursors` | a share, 0 for messages that name no destination and no tenant: how far it was read | at its number |
//! | `held_back` | a lane with only its first messages in memory | at its number |
//! | `days` | a moment of the store's own clock, and the last row of the ledger before it | at the end |
//! | `cancels` | a cancel whose message has not come | rarely |
//! | `occurrences` | the open occurrence of a recurring message | at the end |
//! | `moved` | an open message that got another due time | rarely |
//! | `paused_keys` | a paused key, by its lane | rarely |
//! | `inputs` | how far an input was read | with the messages from the input |
//! | `dead_letters` | a message or record that could not be delivered or read | rarely |
//! | `actions` | an action on many messages | rarely |
//! | `meta` | a value by name | rarely |
//!
//! Rows for every message go to the end of a table. A changed page costs as much as twenty rows: SQLite writes it
//! whole to the write-ahead log, and once more to its place.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::FileId;

/// "tick", at byte 68 of the file.
const APPLICATION_ID: i64 = 0x7469_636B;
/// The number of the format, at byte 60 of the file. A change of the format takes the next number.
const FORMAT: i64 = 12;
/// The name in `meta` of the mark of a backup. The value is when the backup was made, by the wall clock.
///
/// A backup delivers nothing until it is restored (D20). Otherwise it would give new messages the same numbers that its
/// store has given to others since. A destination that knows messages by `(store, seq)` would then take a new message for
/// an old one.
const BACKUP: &str = "backup_ms";

/// How long a reading connection waits for a lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The tables of a new store.
pub(in crate::store) const TABLES: &str = "
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY,
    name INTEGER NOT NULL, -- the first 64 bits of the digest, little endian, signed
    due_ms INTEGER NOT NULL,
    key TEXT,
    id TEXT NOT NULL,
    content BLOB NOT NULL,
    outcome INTEGER, -- where it is not delivery
    again INTEGER, -- the number at which the name came again, after it had an outcome
    first INTEGER -- the number of the first message with its digest, if that is another one; 0: another store may have sent it
);
CREATE TABLE bodies (
    seq INTEGER PRIMARY KEY,
    payload NOT NULL, -- TEXT: JSON; BLOB: other bytes
    expires_ms INTEGER,
    traceparent TEXT,
    latest_ms INTEGER, -- it is due then at the latest, however often it is put off
    recurrence TEXT, -- it is never sent: its occurrences are; empty: what it waits for is in `waits`
    share INTEGER -- by its destination and its tenant, see `message/shares.rs`; NULL: it names neither
);
CREATE TABLE waiting (
    due_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lane INTEGER, -- the number of the key's lane in the share; NULL: no key
    size INTEGER NOT NULL, -- bytes in memory
    redelivered INTEGER NOT NULL DEFAULT 0,
    share INTEGER, -- as in `bodies`
    PRIMARY KEY (due_ms, seq)
) WITHOUT ROWID;
CREATE INDEX waiting_by_share ON waiting (share, due_ms, seq, lane, size, redelivered) WHERE share IS NOT NULL; -- all columns: a load reads no other tree
CREATE TABLE ledger (
    n INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    outcome INTEGER NOT NULL, -- 1 delivered, 2 cancelled, 3 dead letter, 4 moved: it goes on under another number, 5 expired, 6 withdrawn
    at_ms INTEGER NOT NULL,
    lateness_us INTEGER,
    attempts INTEGER NOT NULL,
    redelivered INTEGER NOT NULL
);
CREATE TABLE runs (
    n INTEGER PRIMARY KEY, -- of the table run_N (first_name INTEGER PRIMARY KEY, pairs BLOB NOT NULL)
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    names INTEGER NOT NULL,
    left INTEGER NOT NULL, -- names whose message is not forgotten
    day INTEGER NOT NULL -- of the store's own clock
);
CREATE TABLE filters (run INTEGER, part INTEGER, bits BLOB NOT NULL, PRIMARY KEY (run, part)) WITHOUT ROWID;
CREATE TABLE attempts (
    seq INTEGER PRIMARY KEY,
    attempts INTEGER NOT NULL, -- how often it was sent
    next_ms INTEGER,
    error TEXT,
    counted INTEGER NOT NULL DEFAULT 0, -- how many of the attempts count
    strikes INTEGER NOT NULL DEFAULT 0, -- how often the process ended while it may have been sent
    noted INTEGER NOT NULL DEFAULT 0, -- it goes out now, and gets a strike if the process ends
    waited_ms INTEGER NOT NULL DEFAULT 0, -- how long it was due, and its key without success
    at_ms INTEGER NOT NULL DEFAULT 0, -- when this was noted
    is_unanswered INTEGER NOT NULL DEFAULT 0, -- it may have arrived
    share INTEGER NOT NULL DEFAULT 0 -- as in `bodies`; 0: NULL there
);
CREATE INDEX attempts_by_next ON attempts (share, next_ms);
CREATE TABLE destinations (
    share INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    name TEXT NOT NULL,
    settings TEXT NOT NULL, -- JSON; empty: it was removed, and messages of it are not yet dead letters
    paused_ms INTEGER, -- since when it is paused
    pause_reason TEXT, -- if it was paused because it failed for long
    failing_ms INTEGER -- since when it fails without a success, if that may pause it
);
CREATE INDEX paused_destinations ON destinations (name) WHERE paused_ms IS NOT NULL AND settings <> '';
CREATE UNIQUE INDEX destinations_by_name ON destinations (name) WHERE settings <> '';
CREATE TABLE waits (
    seq INTEGER PRIMARY KEY,
    key INTEGER NOT NULL, -- the number of its key
    names TEXT NOT NULL, -- of events, with a space between two
    event INTEGER -- the one that let it go; 0: it was due before one came, and was moved since; NULL: neither
);
CREATE INDEX waits_by_key ON waits (key) WHERE event IS NULL;
CREATE TABLE events (
    n INTEGER PRIMARY KEY,
    name INTEGER, -- the first 64 bits of the digest, as in `messages`; NULL: the data of a dead letter that is tried anew
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    event TEXT NOT NULL,
    content BLOB,
    at_ms INTEGER NOT NULL, -- when it came, by the store's own clock
    let_go INTEGER NOT NULL, -- how many messages
    open INTEGER NOT NULL, -- how many of all that it let go have no outcome
    until_ms INTEGER, -- it is remembered so long, by the store's own clock
    data TEXT -- JSON for the receivers; NULL: nobody needs it any more
);
CREATE INDEX events_by_name ON events (name) WHERE name IS NOT NULL;
CREATE INDEX events_remembered ON events (key, event) WHERE until_ms IS NOT NULL;
CREATE INDEX events_by_end ON events (until_ms) WHERE until_ms IS NOT NULL;
CREATE TABLE tenants (
    tenant INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    name TEXT NOT NULL UNIQUE,
    settings TEXT, -- JSON; NULL: the usual ones
    paused_ms INTEGER -- since when it is paused
);
CREATE INDEX set_tenants ON tenants (name) WHERE settings IS NOT NULL;
CREATE TABLE cursors (share INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE held_back (lane INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE days (from_ms INTEGER PRIMARY KEY, last_n INTEGER NOT NULL);
CREATE TABLE cancels (
    name INTEGER NOT NULL, key TEXT, id TEXT NOT NULL, at_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL -- it is kept so long, even where ids are not
);
CREATE INDEX cancels_by_name ON cancels (name);
CREATE TABLE occurrences (
    seq INTEGER PRIMARY KEY,
    of_seq INTEGER NOT NULL UNIQUE, -- the recurring message
    at_ms INTEGER NOT NULL, -- by its rule; it may have been put off since
    after_ms INTEGER, -- the time of the one before
    made_ms INTEGER NOT NULL, -- the wall clock when it was made
    stepped_ms INTEGER NOT NULL -- how far the wall clock had been stepped by then, all steps together
);
CREATE TABLE moved (seq INTEGER PRIMARY KEY, first_due_ms INTEGER NOT NULL, partition INTEGER NOT NULL);
CREATE INDEX moved_by_partition ON moved (partition, first_due_ms);
CREATE TABLE paused_keys (lane INTEGER PRIMARY KEY, key TEXT NOT NULL, since_ms INTEGER NOT NULL);
CREATE TABLE inputs (source TEXT PRIMARY KEY, line INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE dead_letters (
    n INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    source TEXT NOT NULL,
    line INTEGER NOT NULL,
    reason TEXT NOT NULL,
    allowed TEXT NOT NULL,
    record BLOB NOT NULL,
    destination TEXT, -- that the message named; it may have been removed since
    tenant TEXT, -- that the message named
    event TEXT -- the data of the event that let it go; empty: it may have waited for one
);
CREATE INDEX letters_by_destination ON dead_letters (destination) WHERE destination IS NOT NULL;
CREATE INDEX letters_by_tenant ON dead_letters (tenant) WHERE tenant IS NOT NULL;
CREATE INDEX letters_by_time ON dead_letters (at_ms); -- they are counted by it, as it is small
CREATE INDEX letters_of_messages ON dead_letters (line) WHERE source = 'delivery';
CREATE TABLE actions (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL, -- cancel, requeue
    key TEXT,
    key_prefix TEXT,
    due_from_ms INTEGER,
    due_before_ms INTEGER,
    destination TEXT,
    tenant TEXT,
    through INTEGER NOT NULL, -- the last message, or letter, that it is about
    began_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    at_ms INTEGER NOT NULL, -- how far it is
    at_seq INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    too_late INTEGER NOT NULL
);
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16))));
";

/// Opens the file as a store. Makes a store of a new or empty file, unless this process has opened it `before`. Only tests
/// set `synchronous` to anything but FULL.
pub(in crate::store) fn connect(
    path: &Path,
    synchronous: &str,
    before: Option<FileId>,
) -> Result<Connection, DeliveryError> {
    // Made absolute, so that `:memory:` is an ordinary file.
    let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // SQLite's mutex is off, because only one thread at a time uses the `Connection`.
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, before.is_none());
    let because = |error: &rusqlite::Error| DeliveryError::from(StoreError::because(path, error));
    let db = Connection::open_with_flags(file, flags).map_err(|error| because(&error))?;
    let is_new = is_new(&db, path)?;
    if !is_new {
        refuse_backup(&db, path)?;
    }
    set_up(&db, is_new, synchronous).map_err(|error| because(&error))?;
    if !is_new && before.is_none() {
        // The process before may have ended because a sync failed. What it wrote is read, but may be on no disk. It is all
        // written again, to its place, and the log starts anew. On a full disk the store goes on without that.
        let moved = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        moved.or_else(|error| match StoreError::because(path, &error) {
            error if error.passes() => Ok(()),
            error => Err(error),
        })?;
    }
    Ok(db)
}

/// Opens a store that is there, for checkpoints and maintenance, with the same library as all others in this process.
pub(in crate::store) fn connect_again(path: &Path) -> rusqlite::Result<Connection> {
    let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags)
}

/// Opens the same file for a thread that reads while the writer goes on.
pub(in crate::store) fn connect_to_look(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(PATIENCE)?;
    Ok(db)
}

fn is_new(db: &Connection, path: &Path) -> Result<bool, DeliveryError> {
    let failed = |error: rusqlite::Error| DeliveryError::from(StoreError::because(path, &error));
    if is_store(db, path, failed)? {
        return Ok(false);
    }
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).map_err(failed)?;
    if tables > 0 {
        let text = format!("{} is a database of another program: name another file", path.display());
        return Err(DeliveryError::Usage(text));
    }
    Ok(true)
}

/// Whether the file is a store, and not empty or a database of another program. `failed` turns an error of SQLite into an
/// error of this store.
///
/// # Errors
/// The store has another format; the file can't be read.
pub(in crate::store) fn is_store(
    db: &Connection,
    path: &Path,
    failed: impl Fn(rusqlite::Error) -> DeliveryError,
) -> Result<bool, DeliveryError> {
    let ask = |text: &str| db.query_row(text, [], |row| row.get::<_, i64>(0)).map_err(&failed);
    if ask("PRAGMA application_id")? != APPLICATION_ID {
        return Ok(false);
    }
    match ask("PRAGMA user_version")? {
        FORMAT => Ok(true),
        found => Err(DeliveryError::Usage(format!(
            "{} is a store of format {found}, and this tickwheel reads and writes format {FORMAT} alone: deliver its \
             messages with the tickwheel that made it, or name another file",
            path.display()
        ))),
    }
}

/// Marks the file as a backup. If a backup is made from a backup, the first mark stays.
pub(in crate::store) fn mark_backup(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (BACKUP, now_ms)).map(|_| ())
}

/// Removes the mark, so that the file is a store.
pub(in crate::store) fn unmark_backup(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE name = ?", [BACKUP]).map(|_| ())
}

/// Whether this store is a backup.
pub(in crate::store) fn is_backup(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT 1 FROM meta WHERE name = ?", [BACKUP], |_| Ok(())).optional().map(|found| found.is_some())
}

fn refuse_backup(db: &Connection, path: &Path) -> Result<(), DeliveryError> {
    if is_backup(db).map_err(|error| StoreError::because(path, &error))? {
        return Err(DeliveryError::Usage(format!(
            "{path} is a backup, which delivers nothing: make a store of it with tickwheel store restore {path} STORE",
            path = path.display()
        )));
    }
    Ok(())
}

fn set_up(db: &Connection, is_new: bool, synchronous: &str) -> rusqlite::Result<()> {
    db.execute_batch(&format!("PRAGMA synchronous = {synchronous}"))?;
    if is_new {
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?; // before the first table is made
    }
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.execute_batch("PRAGMA cache_size = -16000; PRAGMA trusted_schema = 0")?;
    db.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?; // `checkpoints.rs` makes the checkpoints
    db.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    db.set_prepared_statement_cache_capacity(256);
    // Without this SQLite prepares a statement anew whenever a value is bound that its statistics could use. There are none.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if is_new {
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES}
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};
             COMMIT;"
        ))?;
    }
    Ok(())
}
