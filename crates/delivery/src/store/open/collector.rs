//! Deletes payloads some time after the outcome, whole pages at once (D8).
//!
//! Payloads of near messages are deleted by ranges, see `near.rs`. Held messages may have been accepted at any time.
//! Their payloads are collected in the order of the ledger and deleted in ascending order.
//!
//! SQLite writes a page whole, however many of its rows are deleted, so the collector deletes a quarter of a million
//! payloads together. Example: a million messages become due in another order than they came. Then each page loses
//! seven rows at once, not one.
//!
//! The numbers of these messages wait in memory. Past a limit, and after a crash, they are read from the ledger
//! again.
//!
//! A step is bounded by rows and by bytes: a payload of 1 MB has 256 pages to free.

use std::collections::VecDeque;

use rusqlite::{Connection, OptionalExtension, params};

use super::near::Near;
use crate::store::file::options::Limits;
use crate::store::sql::{Result, cached, execute};
use crate::store::tables::meta;

/// Bytes in a page of the file.
const PAGE: u64 = 4_096;

/// How much one step may delete.
struct Budget {
    rows: usize,
    bytes: u64,
}

/// Deletes payloads from `first` to `last`, as far as the budget allows. Returns the last number that is done, if
/// any.
fn delete(db: &Connection, first: i64, last: i64, budget: &mut Budget) -> Result<Option<i64>> {
    let mut through = None;
    {
        let mut select =
            cached(db, "SELECT seq, octet_length(payload) FROM bodies WHERE seq >= ? AND seq <= ? ORDER BY seq")?;
        let mut rows = select.query([first, last])?;
        while budget.rows > 0 && budget.bytes > 0 {
            let Some(row) = rows.next()? else {
                through = Some(last);
                break;
            };
            through = Some(row.get(0)?);
            budget.rows -= 1;
            budget.bytes = budget.bytes.saturating_sub(row.get::<_, i64>(1)? as u64);
        }
    }
    if let Some(through) = through {
        delete_range(db, first, through)?;
    }
    Ok(through)
}

fn delete_range(db: &Connection, first: i64, last: i64) -> Result<()> {
    execute(db, "DELETE FROM bodies WHERE seq >= ? AND seq <= ?", [first, last]).map(drop)
}

/// Deletes payloads after their outcome.
pub(in crate::store) struct Collector {
    limits: Limits,
    /// Held messages in the order of the ledger, as `(n, seq)`.
    queue: VecDeque<(i64, i64)>,
    /// Rows of the ledger to read before those in the queue: after the first number, up to the second.
    unread: Option<(i64, i64)>,
    /// Numbers already read for the next batch.
    read: Vec<i64>,
    /// Numbers being deleted, the greatest first. `batch_n` is the row of the ledger up to which the batch is
    /// complete.
    batch: Vec<i64>,
    batch_n: i64,
    collected_n: i64,
    written_n: i64,
    /// The last row of the ledger at the last step.
    outcomes_n: i64,
}

impl Collector {
    pub(in crate::store) fn new(limits: Limits, collected_n: i64, last_n: i64) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            unread: (collected_n < last_n).then_some((collected_n, last_n)),
            read: Vec::new(),
            batch: Vec::new(),
            batch_n: collected_n,
            collected_n,
            written_n: collected_n,
            outcomes_n: last_n,
        }
    }

    /// Notes that a held message has its outcome, in this row of the ledger.
    pub(in crate::store) fn add(&mut self, n: i64, seq: i64) {
        if self.queue.len() >= self.limits.bodies_in_memory {
            let (from, _) = self.unread.unwrap_or((self.batch_n.max(self.collected_n), 0));
            self.unread = Some((from, n - 1));
            self.queue.clear();
        }
        self.queue.push_back((n, seq));
    }

    /// The row of the ledger up to which no payload of a held message is left.
    pub(in crate::store) fn collected_n(&self) -> i64 {
        self.collected_n
    }

    /// Deletes some payloads. Returns whether there is more to do.
    pub(in crate::store) fn step(
        &mut self,
        db: &Connection,
        near: &mut Near,
        last_n: i64,
        is_idle: bool,
    ) -> Result<bool> {
        let mut budget = Budget { rows: self.limits.bodies_in_step, bytes: self.limits.body_bytes_in_step };
        budget.rows += 2 * self.new_outcomes(last_n);
        let mut more = clear_near(db, near, is_idle, &mut budget)?;
        more |= self.collect(db, last_n, is_idle, &mut budget)?;
        if self.collected_n >= self.written_n + self.limits.bodies_in_step as i64
            || (is_idle && self.collected_n > self.written_n)
        {
            meta::put(db, "collected_n", self.collected_n)?;
            self.written_n = self.collected_n;
        }
        Ok(more)
    }

    fn new_outcomes(&mut self, last_n: i64) -> usize {
        let before = std::mem::replace(&mut self.outcomes_n, last_n);
        (last_n - before) as usize
    }

    fn collect(&mut self, db: &Connection, last_n: i64, is_idle: bool, budget: &mut Budget) -> Result<bool> {
        let least = if is_idle { 1 } else { self.least(db)? };
        while budget.rows > 0 && budget.bytes > 0 {
            if self.batch.is_empty() && !self.fill(db, least)? {
                break;
            }
            self.delete_batch(db, budget)?;
        }
        if self.batch.is_empty() && self.queue.is_empty() && self.unread.is_none() {
            self.collected_n = last_n;
            self.batch_n = last_n;
        }
        Ok(!self.batch.is_empty() || self.unread.is_some() || self.queue.len() >= least)
    }

    /// How many finished payloads make a batch. Small payloads are deleted when they take much space together. If a
    /// payload has pages of its own, a batch is as large as a step. Two payloads of the queue serve as a sample.
    fn least(&self, db: &Connection) -> Result<usize> {
        let mut select = cached(db, "SELECT octet_length(payload) FROM bodies WHERE seq = ?")?;
        let mut largest = 1;
        for (_, seq) in self.queue.front().into_iter().chain(self.queue.back()) {
            let bytes: Option<i64> = select.query_row([seq], |row| row.get(0)).optional()?;
            largest = largest.max(bytes.unwrap_or(0) as u64);
        }
        let (bytes, most) = if largest < PAGE {
            (self.limits.body_bytes_in_batch, self.limits.bodies_in_batch)
        } else {
            (self.limits.body_bytes_in_step, self.limits.bodies_in_step)
        };
        Ok(((bytes / largest) as usize).clamp(1, most))
    }

    /// Begins the next batch, if at least `least` payloads wait.
    fn fill(&mut self, db: &Connection, least: usize) -> Result<bool> {
        if let Some((from, through)) = self.unread {
            let most = self.limits.bodies_in_step * 5;
            let mut select = cached(db, "SELECT n, seq FROM ledger WHERE n > ? AND n <= ? ORDER BY n LIMIT ?")?;
            let mut rows = select.query(params![from, through, most as i64])?;
            let (mut count, mut last_n) = (0, through);
            while let Some(row) = rows.next()? {
                last_n = row.get(0)?;
                self.read.push(row.get(1)?);
                count += 1;
            }
            let is_all = count < most || last_n >= through;
            self.unread = (!is_all).then_some((last_n, through));
            if !is_all && self.read.len() < self.limits.bodies_in_batch {
                return Ok(false);
            }
            self.batch_n = if is_all { through } else { last_n };
            self.batch = std::mem::take(&mut self.read);
        } else if self.queue.len() >= least {
            let count = self.queue.len().min(self.limits.bodies_in_batch);
            for (n, seq) in self.queue.drain(..count) {
                self.batch_n = n;
                self.batch.push(seq);
            }
        } else {
            return Ok(false);
        }
        self.batch.sort_unstable_by(|one, other| other.cmp(one));
        if self.batch.is_empty() {
            self.collected_n = self.batch_n;
        }
        Ok(true)
    }

    /// The kinds of present work, for tests.
    #[cfg(test)]
    pub(in crate::store) fn work(&self) -> Vec<&'static str> {
        let has =
            [("batch", !self.batch.is_empty()), ("queue", !self.queue.is_empty()), ("unread", self.unread.is_some())];
        has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }

    fn delete_batch(&mut self, db: &Connection, budget: &mut Budget) -> Result<()> {
        while let Some(first) = self.batch.pop() {
            let mut last = first;
            while self.batch.last() == Some(&(last + 1)) {
                last += 1;
                self.batch.pop();
            }
            let through = delete(db, first, last, budget)?.unwrap_or(first - 1);
            if through < last {
                self.batch.extend((through + 1..=last).rev());
                break;
            }
        }
        if self.batch.is_empty() {
            self.collected_n = self.batch_n;
        }
        Ok(())
    }
}

/// Deletes payloads of near messages, a chunk at a time.
fn clear_near(db: &Connection, near: &mut Near, is_idle: bool, budget: &mut Budget) -> Result<bool> {
    while budget.rows > 0 && budget.bytes > 0 {
        let Some((ranges, is_heavy)) = near.finished(is_idle) else { return Ok(false) };
        for (first, last) in ranges {
            if is_heavy {
                let Some(through) = delete(db, first, last, budget)? else { return Ok(true) };
                near.deleted(first, through);
            } else {
                delete_range(db, first, last)?;
                near.deleted(first, last);
                budget.rows = budget.rows.saturating_sub((last - first + 1) as usize);
            }
        }
    }
    Ok(near.finished(is_idle).is_some())
}
