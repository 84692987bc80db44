//! Merges runs, writes thin runs anew, and removes empty ones (D5, D8).
//!
//! Only one merge or rewrite runs at a time. Eight neighbours of the same size and day become one run, because each
//! run costs a look at its filter for every new name. If less than an eighth of an earlier day's run is left, and no
//! more than 131,072 messages, the run is written anew from `messages`. If nothing of a run is left, it is dropped:
//! its table is first emptied in steps, then removed.
//!
//! Example: each run has 131,072 names. The eighth run makes one of 1,048,576, and the 64th makes one of 8,388,608.
//! Runs of this size are not merged further.

use rusqlite::{Connection, params};

use super::memory::Memory;
use super::runs::{self, Job};
use crate::store::names::{Names, Run, Survivors};
use crate::store::sql::{Result, cached, execute};

impl Names {
    /// Drops runs without any known message. Then begins a merge, if none is running and one is useful.
    pub(in crate::store) fn choose(&mut self, db: &Connection, day: i64) -> Result<()> {
        if self.merge.is_some() || self.survivors.is_some() {
            return Ok(());
        }
        while let Some(place) = self.runs.iter().position(|run| run.left == 0) {
            let n = self.runs.remove(place).n;
            execute(db, "DELETE FROM runs WHERE n = ?", [n])?;
            self.garbage.push(n);
        }
        let most = self.limits.names_in_memory as u64;
        let is_thin = |run: &&Run| run.day < day && run.left <= most && run.left < run.names / 8;
        if let Some(run) = self.runs.iter().find(is_thin) {
            let (run, next_seq, last_seq) = (run.n, run.first_seq, run.last_seq);
            self.survivors = Some(Survivors { run, next_seq, last_seq, names: Memory::default() });
        } else if let Some(place) = self.mergeable() {
            let merged = &self.runs[place..place + self.limits.runs_in_merge];
            let (sources, names) = (merged.iter().map(|run| run.n).collect(), merged.iter().map(|run| run.names).sum());
            let n = self.take_number();
            self.merge = Some(Job::of_runs(db, n, sources, names, self.limits.names_in_block)?);
        }
        Ok(())
    }

    /// The index of the first run to merge.
    fn mergeable(&self) -> Option<usize> {
        let width = self.limits.runs_in_merge as u64;
        let size = |run: &Run| (run.names / self.limits.names_in_memory as u64).checked_ilog(width).unwrap_or(0);
        let is_any_day = self.runs.len() > self.limits.runs_by_day;
        self.runs.windows(self.limits.runs_in_merge).position(|runs| {
            let first = &runs[0];
            runs.iter().all(|run| size(run) == size(first) && (is_any_day || run.day == first.day))
                && runs.iter().map(|run| run.names).sum::<u64>() <= self.limits.names_in_run
        })
    }

    pub(in crate::store) fn read_survivors(&mut self, db: &Connection, blocks: usize) -> Result<()> {
        let Some(survivors) = &mut self.survivors else { return Ok(()) };
        let limit = blocks * self.limits.names_in_block;
        let text = "SELECT name, seq, key, id FROM messages WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT ?";
        let mut select = cached(db, text)?;
        let mut rows = select.query(params![survivors.next_seq, survivors.last_seq, limit as i64])?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            survivors.next_seq = survivors.names.add_row(db, row)? + 1;
            found += 1;
        }
        if found < limit
            && let Some(survivors) = self.survivors.take()
        {
            let n = self.take_number();
            let mut job = Job::of_pairs(db, n, survivors.names.pairs(), self.limits.names_in_block)?;
            job.replaced.push(survivors.run);
            self.merge = Some(job);
        }
        Ok(())
    }

    pub(in crate::store) fn write_merge(&mut self, db: &Connection, blocks: usize) -> Result<()> {
        let Some(job) = &mut self.merge else { return Ok(()) };
        if !job.step(db, blocks)? {
            return Ok(());
        }
        let Some(job) = self.merge.take() else { return Ok(()) };
        let Some(place) = self.runs.iter().position(|run| run.n == job.replaced[0]) else { return Ok(()) };
        let old: Vec<Run> = self.runs.drain(place..place + job.replaced.len()).collect();
        let range = (old[0].first_seq, old[old.len() - 1].last_seq);
        let left = old.iter().map(|run| run.left).sum();
        let day = old.iter().map(|run| run.day).max().unwrap_or(0);
        self.adopt(db, place, range, left, day, job)
    }

    pub(in crate::store) fn clean(&mut self, db: &Connection, blocks: usize) -> Result<()> {
        if let Some(n) = self.garbage.last()
            && runs::delete_some(db, *n, blocks)?
        {
            self.emptied.extend(self.garbage.pop());
        }
        if self.garbage.is_empty() {
            // All tables are dropped together, because SQLite prepares every statement anew after each change of the
            // schema.
            for n in self.emptied.drain(..) {
                runs::drop_table(db, n)?;
            }
        }
        Ok(())
    }
}
