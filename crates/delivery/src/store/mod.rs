//! Keeps accepted messages, open messages and outcomes in one SQLite file (rules D5 to D8).
//!
//! One thread uses the store, between `begin` and `commit`. After `commit`, the changes of a transaction are on disk;
//! before, none of them are. After an error the store is not used again, because memory may be ahead of the file.
//!
//! - A message is *known* from its acceptance until `keep_ids` after its outcome. If its outcome is a dead letter, or
//!   it was withdrawn, it is not known: its name may be used again (D5).
//! - An *open* message has no outcome. It is *near* from its acceptance until it is held; then it has a row in
//!   `waiting`. When a store is opened, all open messages are in `waiting`.
//! - Positions are `(due_ms, seq)`, the order in which messages of a key are delivered (D4).
//! - `upkeep` does the store's own housekeeping, in small steps. Call it in every transaction.
//!
//! | where | what |
//! |---|---|
//! | `mod.rs`, `types.rs` | [`Store`], its transactions, and the types that they take and return |
//! | `sql.rs`, `log.rs`, `replay.rs` | statements, why one failed, and how they are run again |
//! | `file/` | the file: tables, options, ownership by one process, checkpoints, and replacement by another file |
//! | `tables/` | the small tables |
//! | `names/` | the known names |
//! | `open/` | open messages: accepted, moved, waiting, being sent, finished, and found again after a crash |
//! | `retention.rs`, `upkeep.rs` | forgetting old messages, and giving free pages back |
//! | `look/` | separate connections that read due times, overdue messages, recurring messages, failing keys, and all tables |
//! | `maintenance/` | check, compact, back up, restore |

pub(crate) mod file;
mod first_due;
pub(crate) mod log;
pub(crate) mod look;
pub(crate) mod maintenance;
mod names;
mod open;
mod replay;
#[cfg_attr(not(feature = "postgresql"), allow(dead_code, reason = "nothing else keeps a chain yet"))]
pub(crate) mod replica;
mod retention;
pub(crate) mod sql;
mod tables;
#[cfg(test)]
mod tests;
mod types;
mod upkeep;

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::types::{FromSql, ToSql};

use crate::message::incoming::Digest;

pub(crate) use file::checkpoints::Checkpoints;
pub(crate) use file::options::Limits;
pub(crate) use file::options::{Guard, Options};
pub(crate) use look::beside_writer::{Census, add_overdue};
pub(crate) use open::may_have_arrived::STEADY_UNTIL;
pub(crate) use open::occurrences::Occurrence;
pub(crate) use open::recover::STOPPING;
pub(crate) use sql::{Broken, Result};
pub(crate) use tables::meta::{Opening, PAUSED, RESTORED};
pub(crate) use tables::requests::Action;
pub use tables::requests::{Filter, Kind as ActionKind, MOST_PAUSED_KEYS, PartKind};
pub(crate) use types::{
    Accepted, Attempts, CRASHED, Done, Known, Position, Steps, StoredDestination, StoredTenant, WaitingRow,
};
pub use types::{Letter, Outcome, Progress};

use crate::base::open_stores::FileId;
use crate::store::replica::Replica;
use first_due::FirstDue;
use log::Log;
use names::Names;
use open::collector::Collector;
use open::near::{Floor, Near};
use retention::Retention;
use tables::meta;
use types::{Destinations, Events, Letters, Tenants};

/// The SQLite file, and the part of it that is also in memory.
pub(crate) struct Store {
    path: PathBuf,
    /// The file's identity; `None` if the system does not tell.
    file: Option<FileId>,
    db: Connection,
    id: String,
    limits: Limits,
    number: fn(Digest) -> i64,
    next_seq: i64,
    last_n: i64,
    open: u64,
    cancels: u64,
    with_attempts: u64,
    /// How many of these rows have strikes and no attempts.
    untried: u64,
    recurring: u64,
    steps: Steps,
    first_pause_end_ms: Option<i64>,
    moved: u64,
    redelivered_until_ms: i64,
    was_down: bool,
    openings: Vec<Opening>,
    commits: i64,
    names: Names,
    destinations: Destinations,
    tenants: Tenants,
    events: Events,
    first_due: FirstDue,
    near: Near,
    floor: Floor,
    collector: Collector,
    letters: Letters,
    retention: Retention,
    replica: Option<Replica>,
    /// Between two transactions, if there is a chain.
    log: Option<Log>,
    /// After the connection, because Rust drops fields in order.
    guard: Guard,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).field("open", &self.open).finish_non_exhaustive()
    }
}

/// Opening a store, and the most frequent questions.
impl Store {
    /// The store's unique name: 32 hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The number of messages without an outcome.
    pub(crate) fn open_count(&self) -> u64 {
        self.open
    }

    /// Whether the destination was down when the last process ended.
    pub(crate) fn was_down(&self) -> bool {
        self.was_down
    }

    /// The last openings of the store, with this one at the end.
    pub(crate) fn openings(&self) -> &[Opening] {
        &self.openings
    }

    /// The number of groups that were ever committed, with the one that [`Store::count_commit`] has counted.
    pub(crate) fn commits(&self) -> i64 {
        self.commits
    }

    /// Counts the transaction as a group.
    pub(crate) fn count_commit(&mut self) -> Result<()> {
        self.commits += 1;
        meta::put(&self.db, meta::COMMITS, self.commits)
    }

    /// The number of open recurring messages.
    pub(crate) fn recurring_count(&self) -> u64 {
        self.recurring
    }

    /// The number of the message that was accepted last; 0 before the first.
    pub(crate) fn last_seq(&self) -> i64 {
        self.next_seq - 1
    }

    /// The number of the last row of the ledger; 0 before the first.
    #[cfg(test)]
    pub(crate) fn last_n(&self) -> i64 {
        self.last_n
    }

    /// The number of cancels that wait for their message.
    pub(crate) fn remembered_cancels(&self) -> u64 {
        self.cancels
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What a thread that opens the file keeps until it has closed it.
    pub(crate) fn guard(&self) -> Guard {
        self.guard.clone()
    }

    /// Checks that the file at the store's path is still the open file. If it is another file, messages accepted from
    /// now on would be lost with the process (D9). Costs one `stat`.
    pub(crate) fn check_place(&self) -> Result<()> {
        if self.file.is_some() && FileId::at(&self.path) != self.file {
            let what = "the file was moved, replaced or removed while it was open";
            return Err(Broken::Unusable(what, "put it back with the files beside it, and run again"));
        }
        Ok(())
    }

    /// Lets the file grow only by `left` pages; then the disk is full.
    #[cfg(test)]
    pub(crate) fn fill(&self, left: u32) {
        let pages: u32 = self.db.pragma_query_value(None, "page_count", |row| row.get(0)).expect("it is open");
        self.db.pragma_update(None, "max_page_count", pages + left).expect("it is open");
    }

    /// Near messages that must be held now, because they keep the store from forgetting others. Some are in chunks
    /// far behind. Others are in old chunks, if `keep_ids` is over for messages after them.
    pub(crate) fn stragglers(&self) -> Vec<i64> {
        self.near.stragglers(self.limits.chunks_open, self.retention.old_n())
    }

    /// A value by name, such as the position of a sink. `None` if it was never stored.
    pub(crate) fn get_meta<T: FromSql>(&self, name: &str) -> Result<Option<T>> {
        meta::get(&self.db, name)
    }

    /// Stores a value by name, in place of an older one. The names that the store uses itself are listed in
    /// `open/recover.rs`.
    pub(crate) fn put_meta(&mut self, name: &str, value: impl ToSql) -> Result<()> {
        meta::put(&self.db, name, value)
    }

    /// Whether the message is open and has no row in `waiting`.
    #[cfg(test)]
    pub(crate) fn is_near(&self, seq: i64) -> bool {
        self.near.has(seq)
    }
}

/// Transactions. Call every other method that reads or writes the file between `begin` and `commit`.
///
/// # Errors
///
/// For all methods: the store cannot be read or written. Then do not use it again.
impl Store {
    /// Begins a transaction.
    pub(crate) fn begin(&mut self) -> Result<()> {
        sql::execute(&self.db, "BEGIN IMMEDIATE", ())?;
        let log = match (&self.replica, self.log.take()) {
            (Some(_), None) => Some(Log::of(&self.db)?), // the transaction before was undone
            (_, log) => log,
        };
        Log::open(log);
        Ok(())
    }

    /// When it returns, all changes since `begin` are on disk.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let Some(replica) = &mut self.replica else { return sql::execute(&self.db, "COMMIT", ()).map(drop) };
        let mut log = Log::close().ok_or(Broken::Unusable("it is committed twice", "report it"))?;
        let body = log.take(&self.db)?;
        self.log = Some(log);
        replica.commit(&self.db, body)
    }

    /// Lets a standby begin at once.
    pub(crate) fn end_chain(&mut self) {
        if let Some(replica) = &mut self.replica {
            replica.end();
        }
    }

    /// Whether the file can be written again, after it could not. This value is not used again, because memory is not
    /// undone.
    pub(crate) fn try_to_write(&mut self) -> Result<()> {
        self.rollback()?;
        self.begin()?;
        self.put_meta("committed_ms", self.get_meta::<i64>("committed_ms")?)?;
        self.commit()
    }

    /// Lets the close leave the log as it is. A close that moves the log removes it after a sync that can't be trusted,
    /// because an earlier one failed.
    pub(crate) fn keep_log(&self) {
        let _ = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true); // it is always known
    }

    /// How the same file is opened anew.
    pub(crate) fn file(&self) -> Option<FileId> {
        self.file
    }

    /// Undoes all changes since `begin`, unless SQLite has already done so after an error. Do not use the store
    /// again, because memory is not undone.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        Log::close();
        if self.db.is_autocommit() { Ok(()) } else { sql::execute(&self.db, "ROLLBACK", ()).map(drop) }
    }
}
