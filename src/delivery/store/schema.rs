//! The tables of the store, one SQLite file.

#![forbid(unsafe_code)]

/// "tick", at byte 68 of the file.
pub(super) const APPLICATION_ID: i64 = 0x7469_636B;
/// The version of the format that this code reads and writes.
pub(super) const VERSION: i64 = 2;

/// The tables of a new store.
pub(super) const TABLES: &str = "
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY,
    name INTEGER NOT NULL, -- the first 64 bits of the digest, little endian, signed
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
CREATE TABLE runs (
    n INTEGER PRIMARY KEY, -- of the table run_N (first_name INTEGER PRIMARY KEY, pairs BLOB NOT NULL)
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    names INTEGER NOT NULL,
    left INTEGER NOT NULL, -- names whose message is not forgotten
    day INTEGER NOT NULL -- of the store's own clock
);
CREATE TABLE attempts (seq INTEGER PRIMARY KEY, attempts INTEGER NOT NULL, next_ms INTEGER, error TEXT);
CREATE TABLE held_back (lane INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE days (from_ms INTEGER PRIMARY KEY, last_n INTEGER NOT NULL);
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
";
