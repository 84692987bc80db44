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
//! | file | |
//! |---|---|
//! | `accept.rs`, `finish.rs` | a message comes in; it has its outcome |
//! | `names.rs`, `runs.rs` | which names are known |
//! | `near.rs`, `bodies.rs` | open messages without a row; payloads and how they go |
//! | `waiting.rs`, `marks.rs`, `recover.rs` | the plan; what may have been sent before a crash |
//! | `retention.rs`, `upkeep.rs`, `checkpoints.rs` | what is forgotten; pages and log |
//! | `cancels.rs`, `attempts.rs`, `letters.rs`, `inputs.rs`, `ledger.rs`, `meta.rs` | the small tables |

#![forbid(unsafe_code)]

mod accept;
mod attempts;
mod bodies;
mod cancels;
mod checkpoints;
mod finish;
mod inputs;
mod ledger;
mod letters;
mod locked;
mod marks;
mod meta;
mod names;
mod near;
mod network;
pub mod opened;
mod options;
mod census;
pub mod owner;
mod recover;
mod retention;
mod runs;
mod schema;
mod sql;
#[cfg(test)]
mod tests;
mod types;
pub mod upgrade;
mod upkeep;
mod waiting;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::{FromSql, ToSql};

use crate::delivery::error::{DeliveryError, StoreError};
use crate::delivery::message::{Digest, Incoming, Message};

pub use census::{Census, census};
pub use checkpoints::{Checkpoints, OnFailure};
pub use options::{ClockMs, Limits, Options};
pub use types::{Accepted, Attempts, Done, Held, Known, Letter, Outcome, Percentiles, Position, Progress, Waiting};

use bodies::Collector;
use letters::Letters;
use names::Names;
use near::{Floor, Near};
use retention::Retention;

/// One SQLite file, and what memory knows of it.
pub struct Store {
    path: PathBuf,
    db: Connection,
    id: String,
    limits: Limits,
    number: fn(Digest) -> i64,
    next_seq: i64,
    last_n: i64,
    open: u64,
    cancels: u64,
    with_attempts: u64,
    redelivered_until_ms: i64,
    names: Names,
    near: Near,
    floor: Floor,
    collector: Collector,
    letters: Letters,
    retention: Retention,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).field("open", &self.open).finish_non_exhaustive()
    }
}

/// Opening, and what is asked most.
impl Store {
    /// Makes the store if the file is new or empty. Brings everything that is open into `waiting`, and marks what may have
    /// been sent before a crash.
    ///
    /// # Errors
    ///
    /// `Usage` if the file is no store of this version; `Store`.
    pub fn open(path: &Path, options: Options) -> Result<Self, DeliveryError> {
        Self::open_with(path, options, Digest::number)
    }

    fn open_with(path: &Path, options: Options, number: fn(Digest) -> i64) -> Result<Self, DeliveryError> {
        let db = schema::connect(path)?;
        recover::open(db, path, options, number).map_err(|broken| broken.of(path).into())
    }

    /// Closes the file, also where something still refers to the store. It is not to be used again.
    pub fn close(&mut self) {
        if let Ok(nothing) = Connection::open_in_memory() {
            self.db = nothing;
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that no other store has: 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many messages have no outcome.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.open
    }

    /// The number of the message that was accepted last; 0 before the first.
    #[must_use]
    pub fn last_seq(&self) -> i64 {
        self.next_seq - 1
    }

    /// The number of the last row of the ledger; 0 before the first.
    #[must_use]
    pub fn last_n(&self) -> i64 {
        self.last_n
    }

    /// How many cancels wait for their message.
    #[must_use]
    pub fn remembered_cancels(&self) -> u64 {
        self.cancels
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
    pub fn begin(&mut self) -> Result<(), StoreError> {
        self.run("BEGIN IMMEDIATE")
    }

    /// On return everything since `begin` is on disk.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.run("COMMIT")
    }

    /// Undoes everything since `begin`. The store is not to be used again, as memory is not undone.
    pub fn rollback(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK")
    }

    /// Takes messages in, in this order, and answers each. New ones are near.
    pub fn accept(&mut self, incoming: &[Incoming], now_ms: i64) -> Result<Vec<Accepted>, StoreError> {
        let done = self.take_in(incoming, now_ms);
        self.told(done)
    }

    /// These messages are to have a row in `waiting`: new ones that do not come into memory, and near ones that leave it.
    pub fn hold(&mut self, held: &[Held]) -> Result<(), StoreError> {
        let done = self.write_waiting(held);
        self.told(done)
    }

    /// Near messages that are to be held now: few old ones keep the store from forgetting what it knows of all since.
    #[must_use]
    pub fn stragglers(&self) -> Vec<i64> {
        self.near.stragglers(self.limits.chunks_open)
    }

    /// The message with this name; of those that are known no more, the last one with its outcome.
    pub fn find(&self, key: Option<&str>, id: &str) -> Result<Option<Known>, StoreError> {
        self.told(self.look_up(key, id))
    }

    /// Whether it has no outcome.
    pub fn is_open(&self, known: &Known) -> Result<bool, StoreError> {
        if known.outcome.is_some() {
            return Ok(false);
        }
        if self.near.has(known.seq) {
            return Ok(true);
        }
        self.told(waiting::is_waiting(&self.db, (known.due_ms, known.seq)))
    }

    /// Whether it is open and has no row in `waiting`.
    #[must_use]
    pub fn is_near(&self, seq: i64) -> bool {
        self.near.has(seq)
    }

    /// These have their outcome.
    pub fn finish(&mut self, done: &[Done]) -> Result<(), StoreError> {
        let done = self.write_outcomes(done);
        self.told(done)
    }

    /// A little of all that the store does for its own sake; whether there is more to do. `is_idle`: nothing else is done
    /// in this transaction.
    pub fn upkeep(&mut self, is_idle: bool) -> Result<bool, StoreError> {
        let more = self.keep_up(is_idle);
        self.told(more)
    }
}

/// The plan, and what is known to have been in memory.
impl Store {
    /// The next that wait after this position and are due until then, in order.
    pub fn plan(&self, after: Position, until_ms: i64, limit: usize) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::plan(&self.db, self.with_attempts > 0, after, until_ms, limit))
    }

    /// Those of these lanes among the next `limit` from `start` on, and how far that was; at most to `through`.
    pub fn plan_lanes(
        &self,
        lanes: &[i64],
        start: Position,
        through: Position,
        limit: usize,
    ) -> Result<(Vec<Waiting>, Position), StoreError> {
        self.told(waiting::plan_lanes(&self.db, self.with_attempts > 0, lanes, start, through, limit))
    }

    /// These messages, with their payloads. The caller bounds how many, and how large they are.
    pub fn bodies(&self, seqs: &[i64]) -> Result<HashMap<i64, Message>, StoreError> {
        self.told(bodies::read(&self.db, seqs))
    }

    /// Of what is in `waiting`.
    pub fn first_due_ms(&self) -> Result<Option<i64>, StoreError> {
        self.told(waiting::first_due_ms(&self.db))
    }

    /// From now on everything in memory that is due until `sent_until_ms` may be sent at any moment; `None`: everything that
    /// was sent is committed. In memory are the near messages and, of those in `waiting`, all at or before `cursor`; of a
    /// lane that is held back only those before its position. `held_back_changes`: lanes that are held back from there on,
    /// or (`None`) no more.
    pub fn mark(
        &mut self,
        sent_until_ms: Option<i64>,
        cursor: Option<Position>,
        held_back_changes: &[(i64, Option<Position>)],
    ) -> Result<(), StoreError> {
        let done = self.write_mark(sent_until_ms, cursor, held_back_changes);
        self.told(done)
    }

    /// These have a row in `waiting`, were tried, and may have arrived.
    pub fn mark_redelivered(&mut self, positions: &[Position]) -> Result<(), StoreError> {
        let done = self.write_redelivered(positions);
        self.told(done)
    }

    /// Everything in `waiting` that may have been sent before.
    pub fn suspects(&self) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::redelivered(&self.db, self.with_attempts > 0, self.redelivered_until_ms))
    }

    /// Keeps how often these were tried, until they have their outcome.
    pub fn note_attempts(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        let done = self.write_attempts(attempts);
        self.told(done)
    }

    /// What is kept of a message's attempts.
    pub fn attempts(&self, seq: i64) -> Result<Option<Attempts>, StoreError> {
        self.told(attempts::get(&self.db, seq))
    }
}

/// The small tables.
impl Store {
    /// For a message that is not known: when it comes it is cancelled (D7). It is remembered as long as names are, and until
    /// `until_ms` at least.
    pub fn remember_cancel(
        &mut self,
        key: Option<&str>,
        id: &str,
        now_ms: i64,
        until_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let done = self.write_cancel(key, id, now_ms, until_ms);
        self.told(done)
    }

    /// Dead letters, to be written out after the commit.
    pub fn put_letters(&mut self, letters: &[Letter], at_ms: i64) -> Result<(), StoreError> {
        let done = self.letters.put(&self.db, letters, at_ms);
        self.told(done)
    }

    /// The next to be written out, bounded by count and bytes, and the number to give to `letters_written` then.
    pub fn unwritten_letters(&self) -> Result<(Vec<Letter>, i64), StoreError> {
        self.told(letters::unwritten(&self.db))
    }

    /// All up to this one are written out; old ones go.
    pub fn letters_written(&mut self, through: i64) -> Result<(), StoreError> {
        let done = self.letters.written(&self.db, through);
        self.told(done)
    }

    /// How far each input was read, by name.
    pub fn inputs(&self) -> Result<HashMap<String, Progress>, StoreError> {
        self.told(inputs::every(&self.db))
    }

    /// Takes the place of what was kept for this input.
    pub fn put_input(&mut self, progress: &Progress) -> Result<(), StoreError> {
        self.told(inputs::put(&self.db, progress))
    }

    /// A value by name, as the position of a sink; `None` if it was never put.
    pub fn get_meta<T: FromSql>(&self, name: &str) -> Result<Option<T>, StoreError> {
        self.told(meta::get(&self.db, name))
    }

    /// Takes the place of what was there. The names that the store uses itself are listed in `recover.rs`.
    pub fn put_meta(&mut self, name: &str, value: impl ToSql) -> Result<(), StoreError> {
        self.told(meta::put(&self.db, name, value))
    }

    /// How late what was delivered after that row of the ledger was. O(rows).
    pub fn lateness_ms(&self, after_n: i64) -> Result<Percentiles, StoreError> {
        self.told(ledger::lateness_ms(&self.db, after_n))
    }
}
