//! Forgets messages `keep_ids` after their outcome, oldest first (D5). Time is measured by the store's own clock.
//! The default of `keep_ids` is in `run/settings.rs`.
//!
//! While the store is open, this clock follows a monotonic clock. When the store is opened again, the clock adds the
//! time for which it was closed. The wall clock tells this time, but at least zero and at most a day is added. If the
//! wall clock is stepped 8 days ahead, nothing is forgotten. The store's clock starts at the wall time at which the
//! store was made.
//!
//! Time is divided into parts of a day, or of an eighth of `keep_ids` if that is shorter. The table `days` notes
//! which rows of the ledger were there at the start of a part. A message is kept for at least `keep_ids`, and up to
//! one part longer.
//!
//! Example: `keep_ids` is 7 days, so a part has 21 hours. A message was delivered at 10:00 on day 1, in a part that
//! ends at 21:00. It is forgotten after 21:00 on day 8.
//!
//! A cancel whose message has not come is forgotten `keep_ids` after it came. A cancel of an occurrence stays longer: until
//! its rule has passed that time, or has ended (D19).

use std::collections::VecDeque;

use rusqlite::Connection;

use super::names::Names;
use super::sql::{Result, cached, execute, rows};
use crate::store::file::options::{ClockMs, Limits, Options};
use crate::store::tables::meta;

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// How far the rest of the store has come.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) last_seq: i64,
    pub(super) last_n: i64,
    /// The payloads of all messages up to this row of the ledger are deleted.
    pub(super) collected_n: i64,
}

pub(super) struct Retention {
    keep_ms: i64,
    part_ms: i64,
    limits: Limits,
    monotonic_ms: ClockMs,
    wall_ms: ClockMs,
    /// The distance to add to the monotonic clock.
    ahead_ms: i64,
    noted_ms: i64,
    noted: (i64, i64),
    /// `(from_ms, last_n)`: the part begins after this row of the ledger.
    parts: VecDeque<(i64, i64)>,
    forgotten_n: i64,
    cancels_at_ms: i64,
    cancels_after: Option<i64>,
}

impl Retention {
    pub(super) fn load(db: &Connection, options: Options) -> Result<Self> {
        let Options { keep_ids_ms: keep_ms, monotonic_ms, wall_ms, limits, .. } = options;
        let now_ms = wall_ms();
        let kept_ms = match meta::get::<i64>(db, "kept_ms")?.zip(meta::get::<i64>(db, "kept_wall_ms")?) {
            Some((kept_ms, then_ms)) => kept_ms.saturating_add(now_ms.saturating_sub(then_ms).clamp(0, DAY_MS)),
            None => now_ms,
        };
        let parts = rows(db, "SELECT from_ms, last_n FROM days ORDER BY from_ms", [], |row| row.try_into())?.into();
        let mut retention = Self {
            keep_ms,
            part_ms: (keep_ms / 8).clamp(limits.shortest_part_ms, DAY_MS.max(limits.shortest_part_ms)),
            limits,
            ahead_ms: kept_ms.saturating_sub(monotonic_ms()),
            monotonic_ms,
            wall_ms,
            noted_ms: kept_ms,
            noted: (0, 0),
            parts,
            forgotten_n: meta::get_int(db, "forgotten_n")?,
            cancels_at_ms: i64::MIN,
            cancels_after: None,
        };
        retention.note(db, kept_ms)?;
        Ok(retention)
    }

    /// The time of the store's own clock, in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        (self.monotonic_ms)().saturating_add(self.ahead_ms)
    }

    pub(super) fn keep_ms(&self) -> i64 {
        self.keep_ms
    }

    /// The day of the store's own clock.
    pub(super) fn day(&self) -> i64 {
        self.now_ms().div_euclid(DAY_MS)
    }

    fn note(&mut self, db: &Connection, now_ms: i64) -> Result<()> {
        meta::put(db, "kept_ms", now_ms)?;
        meta::put(db, "kept_wall_ms", (self.wall_ms)())?;
        self.noted_ms = now_ms;
        Ok(())
    }

    /// Messages up to this row of the ledger are old.
    pub(super) fn old_n(&self) -> i64 {
        let before_ms = self.now_ms().saturating_sub(self.keep_ms);
        let old = self.parts.iter().take_while(|(from_ms, _)| *from_ms < before_ms).last();
        old.map_or(self.forgotten_n, |(_, last_n)| *last_n)
    }

    /// Does a part of the work. Returns whether there is more to do.
    pub(super) fn step(&mut self, db: &Connection, names: &mut Names, ends: Ends) -> Result<bool> {
        self.note_time(db, self.now_ms(), ends)?;
        let more = self.forget(db, names, ends)?;
        Ok(more || self.cancels_after.is_some())
    }

    /// The old cancels that may be forgotten now: the next few, as the store has them.
    pub(super) fn old_cancels(&mut self, db: &Connection) -> Result<Vec<OldCancel>> {
        let now_ms = self.now_ms();
        if self.cancels_after.is_none() {
            if now_ms < self.cancels_at_ms {
                return Ok(Vec::new());
            }
            self.cancels_at_ms = now_ms.saturating_add(self.part_ms.min(HOUR_MS));
        }
        let before_ms = now_ms.saturating_sub(self.keep_ms);
        let after = self.cancels_after.unwrap_or(i64::MIN);
        let most = self.limits.forgotten_in_step.div_ceil(10); // a look for the rule of each
        let (old, next) = old_cancels(db, after, before_ms, now_ms, most)?;
        self.cancels_after = next;
        Ok(old)
    }

    /// Notes the time once a second while anything is written, and otherwise once an hour.
    fn note_time(&mut self, db: &Connection, now_ms: i64, ends: Ends) -> Result<()> {
        let written = (ends.last_seq, ends.last_n);
        let wait_ms = if written == self.noted { HOUR_MS } else { 1_000 };
        if now_ms >= self.noted_ms.saturating_add(wait_ms) {
            self.note(db, now_ms)?;
            self.noted = written;
        }
        let (from_ms, last_n) = self.parts.back().copied().unwrap_or((i64::MIN, self.forgotten_n));
        if ends.last_n > last_n && now_ms >= from_ms.saturating_add(self.part_ms) {
            execute(db, "INSERT INTO days (from_ms, last_n) VALUES (?, ?)", [now_ms, ends.last_n])?;
            self.parts.push_back((now_ms, ends.last_n));
        }
        Ok(())
    }

    fn forget(&mut self, db: &Connection, names: &mut Names, ends: Ends) -> Result<bool> {
        let through = self.old_n().min(ends.collected_n);
        if self.forgotten_n < through {
            let text = "SELECT n, seq FROM ledger WHERE n > ? AND n <= ? ORDER BY n LIMIT ?";
            let most = self.limits.forgotten_in_step;
            let old: Vec<(i64, i64)> = rows(db, text, [self.forgotten_n, through, most as i64], |row| row.try_into())?;
            self.forgotten_n = old.last().filter(|_| old.len() == most).map_or(through, |(n, _)| *n);
            let mut seqs: Vec<i64> = old.into_iter().map(|(_, seq)| seq).collect();
            seqs.sort_unstable();
            delete_messages(db, &seqs)?;
            names.forget(db, &seqs)?;
            // The very last row stays, because its number is needed to go on.
            execute(db, "DELETE FROM ledger WHERE n <= ? AND n < ?", [self.forgotten_n, ends.last_n])?;
            meta::put(db, "forgotten_n", self.forgotten_n)?;
            meta::put(db, "last_seq", ends.last_seq)?;
        }
        while let Some((from_ms, last_n)) = self.parts.front()
            && *last_n <= self.forgotten_n
        {
            execute(db, "DELETE FROM days WHERE from_ms = ?", [from_ms])?;
            self.parts.pop_front();
        }
        Ok(self.forgotten_n < through)
    }
}

/// A row of `cancels`, its key and its id.
pub(super) type OldCancel = (i64, Option<String>, String);

/// Deletes by ranges, because whole pages are then freed at once.
fn delete_messages(db: &Connection, seqs: &[i64]) -> Result<()> {
    let mut delete = cached(db, "DELETE FROM messages WHERE seq >= ? AND seq <= ?")?;
    for range in seqs.chunk_by(|one, next| *one + 1 == *next) {
        delete.execute([range[0], range[range.len() - 1]])?;
    }
    Ok(())
}

/// The old ones of the next `most` cancels after this row, and the row to go on from if there may be more.
fn old_cancels(
    db: &Connection,
    after: i64,
    before_ms: i64,
    now_ms: i64,
    most: usize,
) -> Result<(Vec<OldCancel>, Option<i64>)> {
    let text = "SELECT max(rowid), count(*) FROM (SELECT rowid FROM cancels WHERE rowid > ? ORDER BY rowid LIMIT ?)";
    let (last, count): (Option<i64>, i64) = cached(db, text)?.query_row([after, most as i64], |row| row.try_into())?;
    let Some(last) = last else { return Ok((Vec::new(), None)) };
    let text = "SELECT rowid, key, id FROM cancels WHERE rowid > ? AND rowid <= ? AND at_ms < ? AND until_ms < ?";
    let old = rows(db, text, [after, last, before_ms, now_ms], |row| row.try_into())?;
    Ok((old, (count == most as i64).then_some(last)))
}
