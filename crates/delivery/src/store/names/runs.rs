//! Runs: known names on disk. A run is written once, in ascending order, so no page in the middle of a table is
//! touched.
//!
//! A run is a table `run_N`. A row is a block of about 250 pairs `(name, seq)`. A pair has 16 bytes, little endian,
//! and the pairs ascend. A block fills a page, and its key is the first name in it. Pairs of the same name are never
//! in two blocks.
//!
//! A run has a filter. For nearly all names outside the run, the filter tells that the run does not have them. The
//! table `filters` keeps it in parts, so it is not computed again at the next start.
//!
//! A run is complete when it has a row in `runs`. After a crash, incomplete runs are dropped. A `Job` makes a run: it
//! merges sources in ascending order, either names from memory or neighbouring runs.

use fastbloom::BloomFilter;
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sql::{Result, cached, execute};

/// The number of a name, and the number of its message.
pub(in crate::store) type Pair = (i64, i64);

const PAIR_BYTES: usize = 16;
const FILTER_BITS: u64 = 10; // for each name: about one lookup in a hundred is in vain

/// Numbers in one part of a filter: 8 pages.
const PART: usize = if cfg!(test) { 4 } else { 4_096 };
const PART_PAGES: usize = 8;

/// The 64-bit numbers in a filter for this many names.
fn filter_len(names: u64) -> usize {
    (names.max(64) * FILTER_BITS).div_ceil(64) as usize
}

/// The bytes of a filter for this many names.
pub(in crate::store) fn filter_bytes(names: u64) -> usize {
    filter_len(names) * 8
}

fn filter_of(bits: Vec<u64>, names: u64) -> BloomFilter {
    BloomFilter::from_vec(bits).seed(&0).expected_items(names.max(64) as usize)
}

/// The filter of a run with this many names; `None` if it is not kept.
pub(in crate::store) fn read_filter(db: &Connection, run: i64, names: u64) -> Result<Option<BloomFilter>> {
    let mut select = cached(db, "SELECT bits FROM filters WHERE run = ? ORDER BY part")?;
    let mut rows = select.query([run])?;
    let mut bits = Vec::with_capacity(filter_len(names));
    while let Some(row) = rows.next()? {
        let part = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        bits.extend(part.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes"))));
    }
    Ok((bits.len() == filter_len(names)).then(|| filter_of(bits, names)))
}

/// Makes the table of a run.
pub(in crate::store) fn create(db: &Connection, run: i64) -> Result<()> {
    let text = format!("CREATE TABLE run_{run} (first_name INTEGER PRIMARY KEY, pairs BLOB NOT NULL)");
    execute(db, &text, ()).map(drop)
}

/// The statement that finds the block for a name.
pub(in crate::store) fn find_text(run: i64) -> String {
    format!("SELECT pairs FROM run_{run} WHERE first_name <= ? ORDER BY first_name DESC LIMIT 1")
}

/// Finds the messages of a name, with the statement of `find_text`.
pub(in crate::store) fn find(db: &Connection, text: &str, name: i64, found: &mut Vec<i64>) -> Result<()> {
    let mut select = cached(db, text)?;
    let mut rows = select.query([name])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    let pairs = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
    let (mut low, mut high) = (0, pairs.len() / PAIR_BYTES);
    while low < high {
        let middle = low.midpoint(high);
        if pair_at(pairs, middle).0 < name { low = middle + 1 } else { high = middle }
    }
    while low < pairs.len() / PAIR_BYTES {
        let (other, seq) = pair_at(pairs, low);
        if other != name {
            break;
        }
        found.push(seq);
        low += 1;
    }
    Ok(())
}

fn pair_at(pairs: &[u8], place: usize) -> Pair {
    let number = |at: usize| i64::from_le_bytes(pairs[at..at + 8].try_into().expect("8 bytes"));
    (number(place * PAIR_BYTES), number(place * PAIR_BYTES + 8))
}

/// Reads a run from its start, in blocks.
pub(in crate::store) struct Reader {
    text: String,
    /// The next block begins at this name or later; `None` if no block is left.
    next: Option<i64>,
}

impl Reader {
    pub(in crate::store) fn new(run: i64) -> Self {
        let text = format!("SELECT first_name, pairs FROM run_{run} WHERE first_name >= ? ORDER BY first_name LIMIT ?");
        Self { text, next: Some(i64::MIN) }
    }

    /// Reads the pairs of the next `blocks` blocks.
    pub(in crate::store) fn read(&mut self, db: &Connection, blocks: usize, pairs: &mut Vec<Pair>) -> Result<()> {
        let Some(next) = self.next else { return Ok(()) };
        let mut select = cached(db, &self.text)?;
        let mut rows = select.query(params![next, blocks as i64])?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            let block = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            pairs.extend((0..block.len() / PAIR_BYTES).map(|place| pair_at(block, place)));
            self.next = row.get::<_, i64>(0)?.checked_add(1);
            found += 1;
        }
        if found < blocks {
            self.next = None;
        }
        Ok(())
    }
}

/// Pairs in ascending order: from a run, or from memory.
struct Source {
    reader: Option<Reader>,
    pairs: Vec<Pair>,
    next: usize,
}

impl Source {
    fn first(&self) -> Option<Pair> {
        self.pairs.get(self.next).copied()
    }

    /// Reads more pairs if none are left in memory.
    fn fill(&mut self, db: &Connection) -> Result<()> {
        if self.next == self.pairs.len()
            && let Some(reader) = &mut self.reader
        {
            self.pairs.clear();
            self.next = 0;
            reader.read(db, 4, &mut self.pairs)?;
        }
        Ok(())
    }
}

/// Makes a run, in steps.
pub(in crate::store) struct Job {
    /// The number of the run.
    pub(in crate::store) run: i64,
    /// The runs that the new run replaces.
    pub(in crate::store) replaced: Vec<i64>,
    /// Names written so far.
    pub(in crate::store) names: u64,
    pub(in crate::store) filter: BloomFilter,
    /// Parts of the filter kept so far.
    parts: usize,
    insert: String,
    sources: Vec<Source>,
    block: Vec<Pair>,
    block_len: usize,
}

impl Job {
    fn new(db: &Connection, run: i64, names: u64, block_len: usize) -> Result<Self> {
        create(db, run)?;
        Ok(Self {
            run,
            replaced: Vec::new(),
            names: 0,
            filter: filter_of(vec![0; filter_len(names)], names),
            parts: 0,
            insert: format!("INSERT INTO run_{run} VALUES (?, ?)"),
            sources: Vec::new(),
            block: Vec::with_capacity(block_len + 1),
            block_len,
        })
    }

    /// A job for these pairs, which may be in any order.
    pub(in crate::store) fn of_pairs(
        db: &Connection,
        run: i64,
        mut pairs: Vec<Pair>,
        block_len: usize,
    ) -> Result<Self> {
        pairs.sort_unstable();
        let mut job = Self::new(db, run, pairs.len() as u64, block_len)?;
        job.sources.push(Source { reader: None, pairs, next: 0 });
        Ok(job)
    }

    /// A job for these runs, which have `names` names together.
    pub(in crate::store) fn of_runs(
        db: &Connection,
        run: i64,
        runs: Vec<i64>,
        names: u64,
        block_len: usize,
    ) -> Result<Self> {
        let mut job = Self::new(db, run, names, block_len)?;
        job.sources =
            runs.iter().map(|run| Source { reader: Some(Reader::new(*run)), pairs: Vec::new(), next: 0 }).collect();
        job.replaced = runs;
        Ok(job)
    }

    /// Writes up to `blocks` blocks. Returns whether the run is complete.
    pub(in crate::store) fn step(&mut self, db: &Connection, mut blocks: usize) -> Result<bool> {
        for source in &mut self.sources {
            source.fill(db)?;
        }
        loop {
            let firsts = self.sources.iter_mut().filter_map(|source| source.first().map(|pair| (pair, source)));
            let Some((pair, source)) = firsts.min_by_key(|(pair, _)| *pair) else {
                self.flush(db)?;
                return self.keep_filter(db, blocks);
            };
            if self.block.len() >= self.block_len && self.block.last().is_some_and(|last| last.0 != pair.0) {
                self.flush(db)?;
                blocks = blocks.saturating_sub(1);
                if blocks == 0 {
                    return Ok(false);
                }
                continue; // the borrow of the source is over
            }
            source.next += 1;
            source.fill(db)?;
            self.filter.insert_hash(pair.0 as u64);
            self.block.push(pair);
        }
    }

    /// Writes the parts of the filter that fit into `pages` pages, but at least one. Returns whether all parts are
    /// written.
    fn keep_filter(&mut self, db: &Connection, pages: usize) -> Result<bool> {
        let mut insert = cached(db, "INSERT INTO filters (run, part, bits) VALUES (?, ?, ?)")?;
        let left = self.filter.as_slice().chunks(PART).enumerate().skip(self.parts);
        for (part, bits) in left.take((pages / PART_PAGES).max(1)) {
            let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            insert.execute(params![self.run, part as i64, bytes])?;
            self.parts = part + 1;
        }
        Ok(self.parts * PART >= self.filter.as_slice().len())
    }

    fn flush(&mut self, db: &Connection) -> Result<()> {
        let Some((first_name, _)) = self.block.first() else { return Ok(()) };
        let mut bytes = Vec::with_capacity(self.block.len() * PAIR_BYTES);
        for (name, seq) in &self.block {
            bytes.extend_from_slice(&name.to_le_bytes());
            bytes.extend_from_slice(&seq.to_le_bytes());
        }
        execute(db, &self.insert, (first_name, bytes))?;
        self.names += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

/// Deletes up to `blocks` blocks of a run, or parts of its filter. Returns whether nothing is left.
pub(in crate::store) fn delete_some(db: &Connection, run: i64, blocks: usize) -> Result<bool> {
    let text = "SELECT part FROM filters WHERE run = ? ORDER BY part DESC LIMIT 1 OFFSET ?";
    let parts = (blocks / PART_PAGES).max(1) as i64;
    let last: Option<i64> = cached(db, text)?.query_row([run, parts], |row| row.get(0)).optional()?;
    let text = "DELETE FROM filters WHERE run = ? AND part > ?";
    if execute(db, text, [run, last.unwrap_or(-1)])? > 0 {
        return Ok(false);
    }
    let last = format!("SELECT first_name FROM run_{run} ORDER BY first_name LIMIT 1 OFFSET ?");
    let last: Option<i64> = cached(db, &last)?.query_row([blocks as i64], |row| row.get(0)).optional()?;
    match last {
        Some(next) => execute(db, &format!("DELETE FROM run_{run} WHERE first_name < ?"), [next])?,
        None => execute(db, &format!("DELETE FROM run_{run}"), ())?,
    };
    Ok(last.is_none())
}

/// Removes the table of a run.
pub(in crate::store) fn drop_table(db: &Connection, run: i64) -> Result<()> {
    execute(db, &format!("DROP TABLE run_{run}"), ()).map(drop)
}
