//! The open messages with a row in `waiting`, in order of delivery (D4).

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::message::recurrence::NEVER_MS;
use crate::store::Store;
use crate::store::sql::{Broken, Result, cached};
use crate::store::types::{Held, Position, Waiting};

impl Store {
    pub(in crate::store) fn write_waiting(&mut self, held: &[Held]) -> Result<()> {
        let mut held: Vec<&Held> = held.iter().collect();
        held.sort_unstable_by_key(|one| (one.due_ms, one.seq));
        let text = "INSERT INTO waiting (due_ms, seq, lane, size, redelivered) VALUES (?, ?, ?, ?, ?)";
        let mut redelivered_ms = None;
        {
            let mut insert = cached(&self.db, text)?;
            for one in held {
                if !self.near.hold(one.seq) {
                    return Err(Broken::Contradiction(format!("message {} is not near, and cannot be held", one.seq)));
                }
                insert.raw_bind_parameter(1, one.due_ms)?;
                insert.raw_bind_parameter(2, one.seq)?;
                insert.raw_bind_parameter(3, one.lane)?;
                insert.raw_bind_parameter(4, one.size)?;
                insert.raw_bind_parameter(5, one.redelivered)?;
                insert.raw_execute()?;
                if one.redelivered {
                    redelivered_ms = Some(one.due_ms);
                }
            }
        }
        redelivered_ms.map_or(Ok(()), |due_ms| self.note_redelivered(due_ms))
    }
}

pub(in crate::store) fn is_waiting(db: &Connection, (due_ms, seq): Position) -> Result<bool> {
    Ok(cached(db, "SELECT 1 FROM waiting WHERE due_ms = ? AND seq = ?")?.exists([due_ms, seq])?)
}

/// The first due time; recurring messages have none.
pub(in crate::store) fn first_due_ms(db: &Connection) -> rusqlite::Result<Option<i64>> {
    let text = "SELECT min(due_ms) FROM waiting WHERE due_ms < ?";
    db.prepare_cached(text)?.query_row([NEVER_MS], |row| row.get(0))
}

/// The number of messages with exactly this due time.
pub(in crate::store) fn count_of(db: &Connection, due_ms: i64) -> Result<u64> {
    let text = "SELECT count(*) FROM waiting WHERE due_ms = ?";
    let count: i64 = cached(db, text)?.query_row([due_ms], |row| row.get(0))?;
    Ok(count as u64)
}

pub(in crate::store) fn plan(
    db: &Connection,
    with_attempts: bool,
    (due_ms, seq): Position,
    until_ms: i64,
    limit: usize,
) -> Result<Vec<Waiting>> {
    let rest = "WHERE (due_ms, w.seq) > (?, ?) AND due_ms <= ? ORDER BY due_ms, w.seq LIMIT ?";
    select(db, with_attempts, rest, params![due_ms, seq, until_ms, limit as i64])
}

pub(in crate::store) fn plan_lanes(
    db: &Connection,
    with_attempts: bool,
    lanes: &[i64],
    start: Position,
    through: Position,
    limit: usize,
) -> Result<(Vec<Waiting>, Position)> {
    let last = "SELECT due_ms, seq FROM waiting WHERE (due_ms, seq) >= (?, ?) AND (due_ms, seq) <= (?, ?) \
                ORDER BY due_ms, seq LIMIT 1 OFFSET ?";
    let offset = limit.saturating_sub(1) as i64;
    let end: Option<Position> = cached(db, last)?
        .query_row(params![start.0, start.1, through.0, through.1, offset], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let end = end.unwrap_or(through);
    let rest = "WHERE (due_ms, w.seq) >= (?, ?) AND (due_ms, w.seq) <= (?, ?) ORDER BY due_ms, w.seq";
    let mut found = select(db, with_attempts, rest, params![start.0, start.1, end.0, end.1])?;
    let mut wanted = lanes.to_vec();
    wanted.sort_unstable();
    found.retain(|row| row.lane.is_some_and(|lane| wanted.binary_search(&lane).is_ok()));
    Ok((found, end))
}

pub(in crate::store) fn redelivered(db: &Connection, with_attempts: bool, until_ms: i64) -> Result<Vec<Waiting>> {
    let rest = "WHERE due_ms <= ? AND redelivered = 1 ORDER BY due_ms, w.seq";
    select(db, with_attempts, rest, [until_ms])
}

/// The messages that wait for their next attempt, in the order of its time, after this position `(next_ms, seq)`.
pub(in crate::store) fn plan_tried(
    db: &Connection,
    (next_ms, seq): (i64, i64),
    until_ms: i64,
    limit: usize,
) -> Result<Vec<Waiting>> {
    let text = format!(
        "SELECT {COLUMNS} FROM attempts a JOIN messages m ON m.seq = a.seq \
         JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = a.seq \
         WHERE (a.next_ms, a.seq) > (?, ?) AND a.next_ms <= ? ORDER BY a.next_ms, a.seq LIMIT ?"
    );
    query(db, &text, params![next_ms, seq, until_ms, limit as i64])
}

/// The time of the first next attempt after this time.
pub(in crate::store) fn next_tried_ms(db: &Connection, after_ms: i64) -> Result<Option<i64>> {
    Ok(cached(db, "SELECT min(next_ms) FROM attempts WHERE next_ms > ?")?.query_row([after_ms], |row| row.get(0))?)
}

/// The message with this number, if it waits and was tried.
pub(in crate::store) fn find_tried(db: &Connection, seq: i64) -> Result<Option<Waiting>> {
    let text = format!(
        "SELECT {COLUMNS} FROM attempts a JOIN messages m ON m.seq = a.seq \
         JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = a.seq WHERE a.seq = ?"
    );
    Ok(query(db, &text, [seq])?.pop())
}

const COLUMNS: &str =
    "w.due_ms, w.seq, lane, size, redelivered, attempts, next_ms, strikes, waited_ms, at_ms, is_unanswered";

fn select(db: &Connection, with_attempts: bool, rest: &str, values: impl Params) -> Result<Vec<Waiting>> {
    let text = if with_attempts {
        format!("SELECT {COLUMNS} FROM waiting w LEFT JOIN attempts a ON a.seq = w.seq {rest}")
    } else {
        format!("SELECT due_ms, w.seq, lane, size, redelivered, 0, NULL, 0, 0, 0, 0 FROM waiting w {rest}")
    };
    query(db, &text, values)
}

fn query(db: &Connection, text: &str, values: impl Params) -> Result<Vec<Waiting>> {
    let row = |row: &Row<'_>| {
        Ok(Waiting {
            due_ms: row.get(0)?,
            seq: row.get(1)?,
            lane: row.get(2)?,
            size: row.get(3)?,
            redelivered: row.get(4)?,
            attempts: row.get::<_, Option<u32>>(5)?.unwrap_or(0),
            next_ms: row.get(6)?,
            strikes: row.get::<_, Option<u32>>(7)?.unwrap_or(0),
            waited_ms: row.get::<_, Option<i64>>(8)?.unwrap_or(0),
            tried_ms: row.get::<_, Option<i64>>(9)?.unwrap_or(0),
            is_unanswered: row.get::<_, Option<bool>>(10)?.unwrap_or(false),
        })
    };
    Ok(cached(db, text)?.query_map(values, row)?.collect::<rusqlite::Result<_>>()?)
}
