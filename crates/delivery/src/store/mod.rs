//! What was accepted, what is open, and what became of it, in one SQLite file (rules D5 to D8).
//!
//! One thread uses the store, between `begin` and `commit`: what a transaction did is on disk after `commit`, or not at all.
//! After an error the store is not used again, as memory may be ahead of the file then.
//!
//! - A message is *known* from its acceptance until `keep_ids` after its outcome. One whose outcome is a dead letter is not:
//!   it may be put again (D5).
//! - An *open* message has no outcome. It is *near* from its acceptance until it is held; then it has a row in `waiting`.
//!   When a store is opened, everything open is in `waiting`.
//! - Positions are `(due_ms, seq)`, the order in which messages of a key are delivered (D4).
//! - `upkeep` does all that is done for the store's own sake, in small steps: call it in every transaction.
//!
//! | where | what |
//! |---|---|
//! | `mod.rs`, `calls.rs`, `types.rs` | [`Store`], its calls, and what they take and give |
//! | `sql.rs` | statements, and errors of the file |
//! | `file/` | the file: tables, options, which process has it, checkpoints, and how another file takes its place |
//! | `tables/` | the small tables, one file each |
//! | `names/` | which names are known |
//! | `open/` | open messages: accepted, moved, waiting, being sent, finished, and found again after a crash |
//! | `retention.rs`, `upkeep.rs` | what is forgotten, and pages that are given back |
//! | `look/` | what is due when, what is overdue, what recurs, and all tables: read by connections of their own |
//! | `maintenance/` | check, compact, back up, restore |
//! | `upgrade/` | a store of an older version |

mod calls;
pub(crate) mod file;
pub(crate) mod look;
pub(crate) mod maintenance;
mod names;
mod open;
mod retention;
mod sql;
mod tables;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod upgrade;
mod upkeep;

use std::path::PathBuf;

use rusqlite::Connection;

use crate::base::error::StoreError;
use crate::message::incoming::{Digest, Incoming};

pub(crate) use file::checkpoints::Checkpoints;
pub(crate) use file::options::Limits;
pub(crate) use file::options::{Guard, Options};
pub(crate) use look::census::Census;
pub(crate) use look::overdue::add_overdue;
pub use look::rules::Name;
pub(crate) use look::rules::rules_of;
pub(crate) use open::occurrences::Occurrence;
pub(crate) use tables::bulk_actions::Action;
pub use tables::bulk_actions::{Filter, Kind as ActionKind};
pub(crate) use tables::meta::{PAUSED, RESTORED};
pub(crate) use tables::paused_keys::MOST_PAUSED_KEYS;
pub(crate) use types::Outcome;
pub(crate) use types::{Accepted, Attempts, Done, Held, Known, Position, Waiting};
pub use types::{Letter, Progress};

use crate::base::open_stores::FileId;
use names::Names;
use open::bodies::Collector;
use open::near::{Floor, Near};
use retention::Retention;
use tables::letters::Letters;

/// One SQLite file, and what memory knows of it.
pub(crate) struct Store {
    path: PathBuf,
    /// Which file it is; `None` where the system does not say.
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
    recurring: u64,
    moved: u64,
    redelivered_until_ms: i64,
    names: Names,
    near: Near,
    floor: Floor,
    collector: Collector,
    letters: Letters,
    retention: Retention,
    /// After the connection, as fields are dropped in their order.
    guard: Guard,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).field("open", &self.open).finish_non_exhaustive()
    }
}

/// Opening, and what is asked most.
impl Store {
    /// A name that no other store has: 32 hexadecimal digits.
    #[must_use]
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// How many messages have no outcome.
    #[must_use]
    pub(crate) fn open_count(&self) -> u64 {
        self.open
    }

    /// How many of them come again and again.
    #[must_use]
    pub(crate) fn recurring_count(&self) -> u64 {
        self.recurring
    }

    /// The number of the message that was accepted last; 0 before the first.
    #[must_use]
    pub(crate) fn last_seq(&self) -> i64 {
        self.next_seq - 1
    }

    /// The number of the last row of the ledger; 0 before the first.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn last_n(&self) -> i64 {
        self.last_n
    }

    /// How many cancels wait for their message.
    #[must_use]
    pub(crate) fn remembered_cancels(&self) -> u64 {
        self.cancels
    }

    /// A thread of the engine panicked, which is a fault of ours: memory may be in the middle of a change.
    pub(crate) fn panicked(&self) -> StoreError {
        let advice = "see the output of the panic hook, report it, and run again: nothing that was accepted is lost";
        StoreError::new(&self.path, "a thread that uses it panicked", advice)
    }

    /// Looks whether the file at the store's path is the one that is open: what is accepted into another is gone with the
    /// process (D9). Costs one `stat`.
    ///
    /// # Errors
    /// It was moved, replaced or removed.
    pub(crate) fn check_place(&self) -> Result<(), StoreError> {
        if self.file.is_some() && FileId::at(&self.path) != self.file {
            let what = "the file was moved, replaced or removed while it was open";
            return Err(StoreError::new(&self.path, what, "put it back with the files beside it, and run again"));
        }
        Ok(())
    }

    /// The file may grow by so many pages, and then the disk is full.
    #[cfg(test)]
    pub(crate) fn fill(&self, left: u32) {
        let pages: u32 = self.db.pragma_query_value(None, "page_count", |row| row.get(0)).expect("it is open");
        self.db.pragma_update(None, "max_page_count", pages + left).expect("it is open");
    }

    fn told<T>(&self, result: sql::Result<T>) -> Result<T, StoreError> {
        result.map_err(|broken| broken.of(&self.path))
    }

    fn run(&self, text: &str) -> Result<(), StoreError> {
        let run = || -> sql::Result<()> { Ok(sql::cached(&self.db, text)?.raw_execute().map(|_| ())?) };
        self.told(run())
    }
}

/// Transactions. Every other method that reads or writes the file is called between `begin` and `commit`.
///
/// # Errors
///
/// Of all methods: the store cannot be read or written, and is not to be used again.
impl Store {
    /// Begins a transaction.
    pub(crate) fn begin(&mut self) -> Result<(), StoreError> {
        self.run("BEGIN IMMEDIATE")
    }

    /// On return everything since `begin` is on disk.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        self.run("COMMIT")
    }

    /// Undoes everything since `begin`, if SQLite has not done so after an error. The store is not to be used again, as
    /// memory is not undone.
    pub(crate) fn rollback(&mut self) -> Result<(), StoreError> {
        if self.db.is_autocommit() { Ok(()) } else { self.run("ROLLBACK") }
    }

    /// Takes messages in, in this order, and answers each. New ones are near.
    pub(crate) fn accept(&mut self, incoming: &[Incoming], now_ms: i64) -> Result<Vec<Accepted>, StoreError> {
        let done = self.take_in(incoming, now_ms);
        self.told(done)
    }

    /// These messages are to have a row in `waiting`: new ones that do not come into memory, and near ones that leave it.
    pub(crate) fn hold(&mut self, held: &[Held]) -> Result<(), StoreError> {
        let done = self.write_waiting(held);
        self.told(done)
    }

    /// Near messages that are to be held now, as they keep the store from forgetting what it knows of all others: those of
    /// chunks that are far behind, and of the oldest one where `keep_ids` is over for what came after it.
    #[must_use]
    pub(crate) fn stragglers(&self) -> Vec<i64> {
        self.near.stragglers(self.limits.chunks_open, self.retention.old_n())
    }

    /// The message with this name; of those that are known no more, the last one with its outcome.
    pub(crate) fn find(&self, key: Option<&str>, id: &str) -> Result<Option<Known>, StoreError> {
        self.told(self.look_up(key, id))
    }

    /// Whether it is open and has no row in `waiting`.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_near(&self, seq: i64) -> bool {
        self.near.has(seq)
    }

    /// These have their outcome.
    pub(crate) fn finish(&mut self, done: &[Done]) -> Result<(), StoreError> {
        let done = self.write_outcomes(done);
        self.told(done)
    }

    /// A little of all that the store does for its own sake; whether there is more to do. `is_idle`: nothing else is done
    /// in this transaction.
    pub(crate) fn upkeep(&mut self, is_idle: bool) -> Result<bool, StoreError> {
        let more = self.keep_up(is_idle);
        self.told(more)
    }
}
