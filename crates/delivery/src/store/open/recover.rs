//! Opens a store. It moves all open messages into `waiting`, and marks messages that may have been sent before a
//! crash.
//!
//! All this is one transaction: after a crash in the middle, it begins anew. The cost is O(near messages of the last
//! run), and the names in memory.
//!
//! The store itself uses these values in `meta`:
//!
//! | name | |
//! |---|---|
//! | `store_id` | 32 hexadecimal digits |
//! | `last_seq` | the last number of a message; kept because the message itself may be forgotten |
//! | `near_floor_seq`, `near_floor_n` | where near messages begin, see `near.rs` |
//! | `collected_n` | payloads of held messages are deleted up to this row of the ledger, see `collector.rs` |
//! | `forgotten_n` | messages are forgotten up to this row of the ledger, see `retention.rs` |
//! | `kept_ms`, `kept_wall_ms` | the store's own clock, and the wall clock at that moment |
//! | `sent_until_ms`, `steady_until_ms`, `redelivered_until_ms` | see `may_have_arrived.rs` |
//! | `paused_ms` | since when sending is paused, if it is |
//! | `letters_written` | dead letters are written out up to this one |
//! | `backup_ms` | when this file was made, if it is a backup, see `file/schema.rs` |
//! | `restored` | a text that each restore from a backup changes |
//! | `openings`, `commits` | see `tables/meta.rs` |
//! | `steps`, `stepped_ms`, `step_followed_seq` | the steps of the wall clock, and which rules have followed, see `occurrences.rs` |
//! | `stopping` | the process was asked to stop: it may be ended while it sends |
//! | `longest_send_ms` | see `may_have_arrived.rs` |
//! | `chain`, `chain_owner`, `text N` | of a replicated store, see `replica/following.rs` and `log.rs` |
//!
//! For readers of the store, the writer notes three more values. `committed_ms` is the time of its last commit.
//! `down_since_ms` and `down_reason` are set while the destination is down, and null afterwards.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::collector::Collector;
use super::may_have_arrived::Limit;
use super::near::{Floor, Near};
use super::{may_have_arrived, occurrences, waiting};
use crate::base::error::DeliveryError;
use crate::base::open_stores::FileId;
use crate::message::incoming::{Digest, lane_in, lane_of};
use crate::message::recurrence::NEVER_MS;
use crate::message::shares::tenants_at;
use crate::message::{Body, Message};
use crate::store::file::new_file::sync_folder;
use crate::store::file::schema;
use crate::store::first_due::FirstDue;
use crate::store::log::Log;
use crate::store::names::Names;
use crate::store::replica::{Replica, is_replicated};
use crate::store::retention::Retention;
use crate::store::sql::{Broken, Result, cached, execute};
use crate::store::tables::tenants;
use crate::store::tables::{attempts, destinations, events, meta, records, requests};
use crate::store::{Options, Position, Store};

/// Set in `meta` from the moment at which the process is asked to stop.
pub(crate) const STOPPING: &str = "stopping";

impl Store {
    /// Opens the store at `path`, and makes one if the file is new or empty. Each open message gets a row in
    /// `waiting`. The store marks the messages that may have been sent before a crash.
    ///
    /// # Errors
    ///
    /// `Usage` if the file is not a store of this format; `Store` if it cannot be read or written.
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self, DeliveryError> {
        let store = Self::open_with(path, options, Digest::number, "FULL")?;
        sync_folder(path)?; // the log has its name since then; SQLite takes no notice of an error here
        Ok(store)
    }

    pub(in crate::store) fn open_with(
        path: &Path,
        options: Options,
        number: fn(Digest) -> i64,
        synchronous: &str,
    ) -> Result<Self, DeliveryError> {
        let db = schema::connect(path, synchronous, options.before)?;
        open(db, path, options, number).map_err(|broken| match broken {
            Broken::Closed => DeliveryError::Closed,
            broken => broken.of(path).into(),
        })
    }
}

fn open(mut db: Connection, path: &Path, mut options: Options, number: fn(Digest) -> i64) -> Result<Store> {
    let replica =
        options.replicate.take().map(|(to, lease)| Replica::open(&mut db, &to, &lease, options.limits)).transpose()?;
    refuse_replicated(&db, replica.is_some())?;
    execute(&db, "BEGIN IMMEDIATE", ())?;
    Log::open(replica.is_some().then(|| Log::of(&db)).transpose()?);
    let (limits, guard) = (options.limits, options.guard.clone());
    let is_anew = options.before.is_some();
    if is_anew {
        may_have_arrived::clear(&db)?;
    }
    let ask = |text: &str| -> rusqlite::Result<i64> { db.query_row(text, [], |row| row.get(0)) };
    let last_seq = ask("SELECT ifnull(max(seq), 0) FROM messages")?.max(meta::get_int(&db, "last_seq")?);
    let last_n = ask("SELECT ifnull(max(n), 0) FROM ledger")?;
    let floor_n = meta::get_int(&db, "near_floor_n")?;
    let sent_until_ms = meta::get(&db, "sent_until_ms")?;
    let was_stopping = meta::get::<bool>(&db, STOPPING)?.is_some();
    let limit = Limit::load(&db)?.filter(|_| !was_stopping);
    if let Some(limit) = &limit {
        limit.give_strikes(&db)?;
    }
    let near = hold_near(&db, meta::get_int(&db, "near_floor_seq")?, floor_n, sent_until_ms)?;
    if let Some(limit) = &limit {
        limit.give_strikes_to(&db, &near)?;
    }
    attempts::forget_sends(&db)?;
    let redelivered_until_ms = may_have_arrived::note_may_have_arrived_at_crash(&db)?;
    let redelivered_until_ms = may_have_arrived::note_may_have_arrived_unanswered(&db, redelivered_until_ms)?;
    let was_down = meta::get::<i64>(&db, "down_since_ms")?.is_some();
    for name in ["down_since_ms", "down_reason", STOPPING] {
        meta::delete(&db, name)?; // it is about the last run
    }
    // The clock of this table begins anew with the wall clock, which may have been set back: no key waits for longer than it
    // was meant to.
    if !is_anew {
        let now_ms = (options.wall_ms)();
        execute(&db, "UPDATE attempts SET next_ms = next_ms - at_ms + ?1, at_ms = ?1 WHERE at_ms > ?1", [now_ms])?;
    }
    if was_down {
        // Keys that failed together may wait for an hour. Each is tried at once: so the outage goes on, or all do.
        let text = "UPDATE attempts SET next_ms = at_ms WHERE (share = 0 OR share BETWEEN ? AND ?) AND next_ms > at_ms";
        execute(&db, text, tenants_at(0))?;
    }
    // Payloads of finished near messages are left from the floor on. From now on they are collected like the payloads
    // of held messages.
    let collected_n = meta::get_int(&db, "collected_n")?.min(floor_n);
    meta::put(&db, "collected_n", collected_n)?;
    meta::put(&db, "near_floor_seq", last_seq + 1)?;
    meta::put(&db, "near_floor_n", last_n)?;
    let (openings, commits) = if is_anew { meta::last_openings(&db)? } else { meta::note_opening(&db)? };
    let retention = Retention::load(&db, options)?;
    let names = Names::load(&db, limits, retention.day())?;
    let mut store = Store {
        path: path.to_owned(),
        file: FileId::at(path),
        id: meta::get(&db, "store_id")?.unwrap_or_default(),
        limits,
        number,
        next_seq: last_seq + 1,
        last_n,
        open: ask("SELECT count(*) FROM waiting")? as u64,
        cancels: ask("SELECT count(*) FROM cancels")? as u64,
        with_attempts: ask("SELECT count(*) FROM attempts")? as u64,
        untried: ask("SELECT count(*) FROM attempts WHERE attempts = 0")? as u64,
        recurring: waiting::count_of(&db, NEVER_MS)?,
        steps: occurrences::load_steps(&db)?,
        first_pause_end_ms: requests::first_pause_end_ms(&db)?,
        moved: ask("SELECT count(*) FROM moved")? as u64,
        redelivered_until_ms,
        was_down,
        openings,
        commits,
        names,
        destinations: destinations::load(&db)?,
        tenants: tenants::load(&db)?,
        events: events::load(&db)?,
        first_due: FirstDue::new(limits.first_due_times),
        near: Near::new(limits.chunk, last_seq + 1, last_n),
        floor: Floor { seq: last_seq + 1, n: last_n },
        collector: Collector::new(limits, collected_n, last_n),
        letters: records::load_letters(&db)?,
        retention,
        replica,
        log: None,
        db,
        guard,
    };
    store.commit()?;
    Ok(store)
}

/// A file that has a chain is behind it if it is written without.
fn refuse_replicated(db: &Connection, has_chain: bool) -> Result<()> {
    if !has_chain && is_replicated(db)? {
        let what = "it is replicated, and only a process with --replicate-to may write it";
        let advice =
            "start one with the address that the store was begun with, and give commands the address of its HTTP";
        return Err(Broken::Chain(what.to_owned(), advice));
    }
    Ok(())
}

/// Writes a row in `waiting` for each open near message. Returns those that may have been sent.
fn hold_near(db: &Connection, floor_seq: i64, floor_n: i64, sent_until_ms: Option<i64>) -> Result<Vec<Position>> {
    let mut finished: Vec<i64> = cached(db, "SELECT seq FROM ledger WHERE n > ?")?
        .query_map([floor_n], |row| row.get(0))?
        .filter(|seq| seq.as_ref().map_or(true, |seq| *seq >= floor_seq))
        .collect::<rusqlite::Result<_>>()?;
    finished.sort_unstable();
    let empty = Message { body: Body::new(None, "", b"", false), due_ms: 0, delay_ms: None }.size_in_memory();
    let mut messages =
        cached(db, "SELECT seq, due_ms, key, octet_length(id) FROM messages WHERE seq >= ? ORDER BY seq")?;
    let mut share_of = cached(db, "SELECT share FROM bodies WHERE seq = ?")?;
    let mut rows = messages.query([floor_seq])?;
    let mut may_have_been_sent = Vec::new();
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        if finished.binary_search(&seq).is_ok() {
            continue;
        }
        let due_ms: i64 = row.get(1)?;
        let key = row.get_ref(2)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        let name_bytes = key.map_or(0, str::len) + row.get::<_, i64>(3)? as usize;
        let size = (empty + name_bytes) as i64;
        let share: Option<i64> = share_of.query_row([seq], |row| row.get(0)).optional()?.flatten();
        let lane = lane_of(key).map(|number| lane_in(share.unwrap_or(0), number));
        let is_sent = sent_until_ms.is_some_and(|until_ms| due_ms <= until_ms);
        let inserted = cached(
            db,
            // A held message has its row already.
            "INSERT OR IGNORE INTO waiting (due_ms, seq, lane, size, redelivered, share) \
             SELECT ?2, b.seq, ?3, ?4 + octet_length(payload) + ifnull(octet_length(names), 0) + ifnull(octet_length(data), 0), \
             ?5, ?6 FROM bodies b LEFT JOIN waits w ON w.seq = b.seq LEFT JOIN events e ON e.n = w.event WHERE b.seq = ?1",
        )?
        .execute(params![seq, due_ms, lane, size, is_sent, share])?;
        if inserted > 0 && is_sent {
            may_have_been_sent.push((due_ms, seq));
        }
    }
    Ok(may_have_been_sent)
}
