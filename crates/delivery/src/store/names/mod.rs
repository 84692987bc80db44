//! Finds known messages by the number of their name. The newest names are in memory, all others in runs on disk.
//!
//! Numbers are random. If each went to its place in one large table, every message would touch a page. For this
//! reason memory collects the newest numbers. When there are enough, they are written as a run (`runs.rs`), a table
//! of its own. Memory keeps them until the run is complete, and collects the next numbers meanwhile. Each run has a
//! filter in memory, so a look-up rarely reads a run without the name. Runs are merged (`merges.rs`), so there are
//! only a few.
//!
//! A crash loses nothing, because `messages` has all names. After a crash, the names after the last complete run are
//! read again from `messages`. A found number only tells where to look: the caller compares key and id, and the
//! message may be forgotten by then.
//!
//! If a name comes again (D16), it is known by its newest message, which is looked at first. The older message leaves
//! memory. A change of a name always costs the same, however often the name was changed before.
//!
//! Memory takes some 40 bytes for each of at most twice 131,072 names. It also takes 10 bits for each name in a run,
//! up to 32 MiB. Past this limit, the oldest runs are read from disk.

mod memory;
mod merges;
pub(super) mod runs;

use fastbloom::BloomFilter;
use rusqlite::Connection;

use super::sql::{Result, execute};
use crate::store::file::options::Limits;
use memory::{Memory, first};
use runs::Job;

pub(super) struct Run {
    pub(super) n: i64,
    pub(super) first_seq: i64,
    pub(super) last_seq: i64,
    pub(super) names: u64,
    pub(super) left: u64,
    pub(super) day: i64,
    /// `None` if the filter would take too much memory.
    filter: Option<BloomFilter>,
    find: String,
}

/// The names left in a run that is written anew.
pub(super) struct Survivors {
    pub(super) run: i64,
    pub(super) next_seq: i64,
    pub(super) last_seq: i64,
    pub(super) names: Memory,
}

/// The known names. Used inside the store's transactions.
pub(super) struct Names {
    pub(super) limits: Limits,
    memory: Memory,
    /// Names that are being written as a run.
    sealed: Option<(Memory, Job)>,
    /// In ascending order of the messages. The ranges of two runs never overlap.
    pub(super) runs: Vec<Run>,
    pub(super) merge: Option<Job>,
    pub(super) survivors: Option<Survivors>,
    /// Tables without further use. When a table is empty, it moves from `garbage` to `emptied`.
    pub(super) garbage: Vec<i64>,
    pub(super) emptied: Vec<i64>,
    next_run: i64,
    added: usize,
}

impl Names {
    /// Loads the names on disk. O(names after the last run), or O(all names) if there is no run.
    pub(super) fn load(db: &Connection, limits: Limits, day: i64) -> Result<Self> {
        let mut names = Self {
            limits,
            memory: Memory::with_room(limits.names_in_memory),
            sealed: None,
            runs: Vec::new(),
            merge: None,
            survivors: None,
            garbage: Vec::new(),
            emptied: Vec::new(),
            next_run: 1,
            added: 0,
        };
        names.load_runs(db)?;
        let covered_seq = names.runs.last().map_or(0, |run| run.last_seq);
        let mut select = db.prepare("SELECT name, seq, key, id FROM messages WHERE seq > ? ORDER BY seq")?;
        let mut newer = select.query([covered_seq])?;
        while let Some(row) = newer.next()? {
            if names.is_full() {
                names.seal(db)?;
                names.write_sealed(db, usize::MAX, day)?;
            }
            names.memory.add_row(db, row)?;
        }
        Ok(names)
    }

    fn load_runs(&mut self, db: &Connection) -> Result<()> {
        let mut select = db.prepare("SELECT n, first_seq, last_seq, names, left, day FROM runs ORDER BY first_seq")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let n = row.get(0)?;
            let (names, left): (i64, i64) = (row.get(3)?, row.get(4)?);
            self.runs.push(Run {
                n,
                first_seq: row.get(1)?,
                last_seq: row.get(2)?,
                names: names.max(0) as u64,
                left: left.max(0) as u64,
                day: row.get(5)?,
                filter: None,
                find: runs::find_text(n),
            });
        }
        let first = self.first_with_filter();
        for run in &mut self.runs[first..] {
            run.filter = runs::read_filter(db, run.n, run.names)?;
        }
        let mut tables =
            db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'run_[0-9]*'")?;
        let mut tables = tables.query([])?;
        while let Some(row) = tables.next()? {
            let name: String = row.get(0)?;
            let Ok(n) = name["run_".len()..].parse::<i64>() else { continue };
            self.next_run = self.next_run.max(n + 1);
            if self.runs.iter().all(|run| run.n != n) {
                self.garbage.push(n);
            }
        }
        Ok(())
    }

    /// Adds a new message. Add messages in ascending order of `seq`. `before`: the earlier message of the same name.
    pub(super) fn add(&mut self, name: i64, seq: i64, before: Option<i64>) {
        self.memory.add(name, seq, before);
        self.added += 1;
    }

    /// The newest message in memory whose name has this number.
    pub(super) fn newest(&self, name: i64) -> Option<i64> {
        self.memory.newest(name)
    }

    /// For each of these numbers, the newest message that `known` accepts. `known` gets the index of the number and a
    /// message with this number, the newest first, until it accepts one.
    pub(super) fn find<T>(
        &self,
        db: &Connection,
        names: &[i64],
        mut known: impl FnMut(usize, i64) -> Result<Option<T>>,
    ) -> Result<Vec<Option<T>>> {
        let mut found = Vec::with_capacity(names.len());
        let mut left: Vec<(u64, usize)> = Vec::new();
        for (place, name) in names.iter().enumerate() {
            found.push(self.find_in_memory(*name, |seq| known(place, seq))?);
            if found[place].is_none() && !self.runs.is_empty() {
                left.push((*name as u64, place));
            }
        }
        left.sort_unstable(); // then neighbours in a filter, and in a table, follow each other
        let mut seqs = Vec::new();
        for run in self.runs.iter().rev() {
            for (hash, place) in &left {
                let may_have = run.filter.as_ref().is_none_or(|filter| filter.contains_hash(*hash));
                if !may_have || found[*place].is_some() {
                    continue;
                }
                runs::find(db, &run.find, *hash as i64, &mut seqs)?;
                found[*place] = first(seqs.drain(..).rev(), |seq| known(*place, seq))?;
            }
        }
        Ok(found)
    }

    /// Like `find`, for a single number and only in memory.
    pub(super) fn find_in_memory<T>(
        &self,
        name: i64,
        known: impl FnMut(i64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let sealed = self.sealed.iter().flat_map(|(sealed, _)| sealed.find(name));
        first(self.memory.find(name).chain(sealed), known)
    }

    /// Notes that these messages, in ascending order, are forgotten.
    pub(super) fn forget(&mut self, db: &Connection, seqs: &[i64]) -> Result<()> {
        let mut rest = seqs;
        for run in &mut self.runs {
            let before = rest.partition_point(|seq| *seq < run.first_seq);
            rest = &rest[before..];
            let of_run = rest.partition_point(|seq| *seq <= run.last_seq);
            if of_run > 0 {
                run.left = run.left.saturating_sub(of_run as u64);
                execute(db, "UPDATE runs SET left = ? WHERE n = ?", [run.left as i64, run.n])?;
                rest = &rest[of_run..];
            }
        }
        if let Some((sealed, _)) = &mut self.sealed {
            let of_sealed = rest.partition_point(|seq| *seq <= sealed.last_seq);
            sealed.forgotten += of_sealed as u64;
            rest = &rest[of_sealed..];
        }
        self.memory.forgotten += rest.len() as u64;
        Ok(())
    }

    /// Does a part of the work. `day` is the day of the store's own clock. Returns whether there is more to do.
    pub(super) fn step(&mut self, db: &Connection, day: i64) -> Result<bool> {
        let more_names = self.limits.writes_of_name * std::mem::take(&mut self.added);
        let blocks = self.limits.blocks_in_step + more_names / self.limits.names_in_block;
        if self.sealed.is_none() && self.is_full() {
            self.seal(db)?;
        }
        self.write_sealed(db, blocks, day)?;
        self.write_merge(db, blocks)?;
        self.choose(db, day)?;
        self.read_survivors(db, blocks)?;
        self.clean(db, blocks)?;
        Ok(self.sealed.is_some() || self.merge.is_some() || self.survivors.is_some() || !self.garbage.is_empty())
    }

    /// Whether memory is full. This counts messages and not names, because after a crash each of these messages is
    /// read again.
    fn is_full(&self) -> bool {
        self.memory.messages >= self.limits.names_in_memory as u64
    }

    pub(super) fn take_number(&mut self) -> i64 {
        let n = self.next_run;
        self.next_run += 1;
        n
    }

    fn seal(&mut self, db: &Connection) -> Result<()> {
        let n = self.take_number();
        let memory = std::mem::replace(&mut self.memory, Memory::with_room(self.limits.names_in_memory));
        let job = Job::of_pairs(db, n, memory.pairs(), self.limits.names_in_block)?;
        self.sealed = Some((memory, job));
        Ok(())
    }

    fn write_sealed(&mut self, db: &Connection, blocks: usize, day: i64) -> Result<()> {
        let Some((_, job)) = &mut self.sealed else { return Ok(()) };
        if job.step(db, blocks)?
            && let Some((memory, job)) = self.sealed.take()
        {
            let left = memory.messages.saturating_sub(memory.forgotten);
            self.adopt(db, self.runs.len(), (memory.first_seq, memory.last_seq), left, day, job)?;
        }
        Ok(())
    }

    /// Gives a complete run its place among the others.
    pub(super) fn adopt(
        &mut self,
        db: &Connection,
        place: usize,
        (first_seq, last_seq): (i64, i64),
        left: u64,
        day: i64,
        job: Job,
    ) -> Result<()> {
        let find = runs::find_text(job.run);
        for n in &job.replaced {
            execute(db, "DELETE FROM runs WHERE n = ?", [n])?;
        }
        let text = "INSERT INTO runs (n, first_seq, last_seq, names, left, day) VALUES (?, ?, ?, ?, ?, ?)";
        execute(db, text, [job.run, first_seq, last_seq, job.names as i64, left as i64, day])?;
        self.garbage.extend(&job.replaced);
        let filter = Some(job.filter);
        self.runs.insert(place, Run { n: job.run, first_seq, last_seq, names: job.names, left, day, filter, find });
        let first = self.first_with_filter();
        self.runs[..first].iter_mut().for_each(|run| run.filter = None);
        Ok(())
    }

    /// The place of the first run with a filter in memory. Those of the newest runs fit.
    fn first_with_filter(&self) -> usize {
        let mut bytes = 0;
        let fits = |run: &&Run| {
            bytes += runs::filter_bytes(run.names);
            bytes <= self.limits.filter_bytes
        };
        self.runs.len() - self.runs.iter().rev().take_while(fits).count()
    }

    /// The kinds of present work, for tests.
    #[cfg(test)]
    pub(super) fn work(&self) -> Vec<&'static str> {
        let has = [
            ("sealed", self.sealed.is_some()),
            ("runs", !self.runs.is_empty()),
            ("merge", self.merge.is_some()),
            ("survivors", self.merge.as_ref().is_some_and(|job| job.replaced.len() == 1)),
            ("garbage", !self.garbage.is_empty()),
            ("no filter", self.runs.iter().any(|run| run.filter.is_none())),
            ("filter", self.runs.iter().any(|run| run.filter.is_some())),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }

    /// The number of names in memory, for tests.
    #[cfg(test)]
    pub(super) fn in_memory(&self) -> usize {
        self.memory.len() + self.sealed.as_ref().map_or(0, |(sealed, _)| sealed.len())
    }
}
