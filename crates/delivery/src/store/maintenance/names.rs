//! Checks the known names. The newest message of each name must be found by the name, in the run for its number. Each
//! name must have only one known message.

use rusqlite::{Connection, OptionalExtension};

use super::problems::Problems;
use crate::message::incoming::Digest;
use crate::store::names::runs::{self, Pair};
use crate::store::sql::{Result, cached, rows};

struct Run {
    n: i64,
    first_seq: i64,
    last_seq: i64,
    names: i64,
    left: i64,
}

pub(super) fn look(db: &Connection, number: fn(Digest) -> i64, problems: &mut Problems) -> Result<()> {
    let replaced = look_for_twins(db, problems)?;
    look_at_runs(db, &replaced, problems)?;
    look_at_cancels(db, number, problems)
}

fn look_at_runs(db: &Connection, replaced: &[i64], problems: &mut Problems) -> Result<()> {
    let all = "SELECT n, first_seq, last_seq, names, left FROM runs ORDER BY first_seq";
    let run = |row: &rusqlite::Row<'_>| {
        let (n, first_seq, last_seq) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Run { n, first_seq, last_seq, names: row.get(3)?, left: row.get(4)? })
    };
    let found: Vec<Run> = rows(db, all, [], run)?;
    for pair in found.windows(2) {
        let is_shared = pair[1].first_seq <= pair[0].last_seq;
        problems.add_if(is_shared, "runs of names that share messages with another one", pair[1].n);
    }
    found.iter().try_for_each(|run| look_at_run(db, run, replaced, problems))
}

/// Checks one run. A name in it without a message belongs to a forgotten message. `replaced` lists, in ascending
/// order, messages that were replaced by a newer one of their name. A replaced message may be in the run or not.
fn look_at_run(db: &Connection, run: &Run, replaced: &[i64], problems: &mut Problems) -> Result<()> {
    let count = "SELECT count(*) FROM messages WHERE seq >= ? AND seq <= ?";
    let messages: i64 = cached(db, count)?.query_row([run.first_seq, run.last_seq], |row| row.get(0))?;
    problems.add_if(messages != run.left, "runs of names that count their messages wrong", run.n);
    let filter = runs::read_filter(db, run.n, u64::try_from(run.names).unwrap_or(0))?;
    let mut name_of = cached(db, "SELECT name FROM messages WHERE seq = ?")?;
    let first_replaced = replaced.partition_point(|seq| *seq < run.first_seq);
    let replaced = &replaced[first_replaced..replaced.partition_point(|seq| *seq <= run.last_seq).max(first_replaced)];
    let (mut names, mut newest, mut before): (i64, i64, Option<Pair>) = (0, 0, None);
    let mut reader = runs::Reader::new(run.n);
    let mut pairs = Vec::new();
    loop {
        pairs.clear();
        reader.read(db, 16, &mut pairs)?;
        if pairs.is_empty() {
            break;
        }
        for pair in &pairs {
            let is_outside = pair.1 < run.first_seq || pair.1 > run.last_seq;
            problems.add_if(is_outside, "messages that are in the run of others", pair.1);
            problems.add_if(before.is_some_and(|before| before >= *pair), "runs of names out of order", run.n);
            let is_seen = filter.as_ref().is_none_or(|filter| filter.contains_hash(pair.0 as u64));
            problems.add_if(!is_seen, "messages that the filter of their run does not find", pair.1);
            if let Some(name) = name_of.query_row([pair.1], |row| row.get::<_, i64>(0)).optional()? {
                newest += i64::from(replaced.binary_search(&pair.1).is_err());
                problems.add_if(name != pair.0, "messages that are in a run under another name", pair.1);
            }
            before = Some(*pair);
            names += 1;
        }
    }
    problems.add_if(names != run.names, "runs that do not have as many names as they should", run.n);
    problems.add_if(newest + replaced.len() as i64 != messages, "runs of names that lack a message", run.n);
    Ok(())
}

/// Finds messages with the same key and id. Each but the first must be marked as coming again, or one of them must be
/// given up, moved, expired or withdrawn. Returns the messages that were replaced by a newer one of their name, in
/// ascending order. Memory: O(their number).
fn look_for_twins(db: &Connection, problems: &mut Problems) -> Result<Vec<i64>> {
    // Nearly always a number has one message, so few names are compared.
    let text = "SELECT seq, lead(seq) OVER it IS NOT NULL,
                    is_known AND again IS NULL AND max(is_known) OVER (it ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                FROM (SELECT name, key, id, seq, again, outcome IS NULL OR outcome NOT IN (3, 4, 5, 6) AS is_known FROM messages
                      WHERE name IN (SELECT name FROM messages GROUP BY name HAVING count(*) > 1))
                WINDOW it AS (PARTITION BY name, key, id ORDER BY seq)";
    let mut select = db.prepare(text)?;
    let mut rows = select.query([])?;
    let mut replaced = Vec::new();
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        let is_twin = row.get::<_, Option<bool>>(2)? == Some(true);
        problems.add_if(is_twin, "messages that were accepted though their key and id were known", seq);
        if row.get(1)? {
            replaced.push(seq);
        }
    }
    replaced.sort_unstable();
    Ok(replaced)
}

fn look_at_cancels(db: &Connection, number: fn(Digest) -> i64, problems: &mut Problems) -> Result<()> {
    let mut select = db.prepare("SELECT rowid, name, key, id FROM cancels")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let key = row.get_ref(2)?.as_bytes_or_null().map_err(rusqlite::Error::from)?.map(text);
        let id = text(row.get_ref(3)?.as_bytes().map_err(rusqlite::Error::from)?);
        let is_right = row.get::<_, i64>(1)? == number(Digest::of(key.as_deref(), &id));
        problems.add_if(!is_right, "cancels whose digest is not that of their key and id", row.get(0)?);
    }
    Ok(())
}
