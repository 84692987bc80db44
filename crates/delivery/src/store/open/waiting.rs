//! The open messages with a row in `waiting`, in order of delivery (D4).

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::message::recurrence::NEVER_MS;
use crate::store::Store;
use crate::store::sql::{Broken, Result, cached};
use crate::store::types::{Known, Position, WaitingRow};

impl Store {
    /// Writes a row in `waiting` for each of these messages: new messages that stay out of memory, and near messages
    /// that leave memory.
    pub(crate) fn hold(&mut self, held: &[WaitingRow]) -> Result<()> {
        let mut held: Vec<_> = held.iter().collect();
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

    /// Whether the message has no outcome.
    pub(crate) fn is_open(&self, known: &Known) -> Result<bool> {
        Ok(known.outcome.is_none() && (self.near.has(known.seq) || is_waiting(&self.db, (known.due_ms, known.seq))?))
    }

    /// The first due time in `waiting`.
    pub(crate) fn first_due_ms(&self) -> Result<Option<i64>> {
        Ok(first_due_ms(&self.db)?)
    }

    /// The next messages in `waiting` after this position and due until `until_ms`, in order.
    pub(crate) fn plan(&self, (due_ms, seq): Position, until_ms: i64, limit: usize) -> Result<Vec<WaitingRow>> {
        let rest = "WHERE (due_ms, w.seq) > (?, ?) AND due_ms <= ? ORDER BY due_ms, w.seq LIMIT ?";
        self.select(rest, params![due_ms, seq, until_ms, limit as i64])
    }

    /// Looks at the next `limit` rows from `start` on, but not past `through`. Returns the rows in these lanes, and
    /// the position of the last row it looked at.
    pub(crate) fn plan_lanes(
        &self,
        lanes: &[i64],
        start: Position,
        through: Position,
        limit: usize,
    ) -> Result<(Vec<WaitingRow>, Position)> {
        let last = "SELECT due_ms, seq FROM waiting WHERE (due_ms, seq) >= (?, ?) AND (due_ms, seq) <= (?, ?) \
                ORDER BY due_ms, seq LIMIT 1 OFFSET ?";
        let offset = limit.saturating_sub(1) as i64;
        let end: Option<Position> = cached(&self.db, last)?
            .query_row(params![start.0, start.1, through.0, through.1, offset], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let end = end.unwrap_or(through);
        let rest = "WHERE (due_ms, w.seq) >= (?, ?) AND (due_ms, w.seq) <= (?, ?) ORDER BY due_ms, w.seq";
        let mut found = self.select(rest, params![start.0, start.1, end.0, end.1])?;
        let mut wanted = lanes.to_vec();
        wanted.sort_unstable();
        found.retain(|row| row.lane.is_some_and(|lane| wanted.binary_search(&lane).is_ok()));
        Ok((found, end))
    }

    /// All messages in `waiting` that may have been sent before.
    pub(crate) fn suspects(&self) -> Result<Vec<WaitingRow>> {
        let rest = "WHERE due_ms <= ? AND redelivered = 1 ORDER BY due_ms, w.seq";
        self.select(rest, [self.redelivered_until_ms])
    }

    /// The next `limit` messages that wait for an attempt until `until_ms`, in the order of its time, after this
    /// position `(next_ms, seq)`.
    pub(crate) fn plan_tried(
        &self,
        (next_ms, seq): (i64, i64),
        until_ms: i64,
        limit: usize,
    ) -> Result<Vec<WaitingRow>> {
        if self.with_attempts == 0 {
            return Ok(Vec::new());
        }
        let text = format!(
            "SELECT {COLUMNS} FROM attempts a JOIN messages m ON m.seq = a.seq \
         JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = a.seq \
         WHERE (a.next_ms, a.seq) > (?, ?) AND a.next_ms <= ? ORDER BY a.next_ms, a.seq LIMIT ?"
        );
        query(&self.db, &text, params![next_ms, seq, until_ms, limit as i64])
    }

    /// The time of the first next attempt after this time.
    pub(crate) fn next_tried_ms(&self, after_ms: i64) -> Result<Option<i64>> {
        if self.with_attempts == 0 {
            return Ok(None);
        }
        Ok(cached(&self.db, "SELECT min(next_ms) FROM attempts WHERE next_ms > ?")?
            .query_row([after_ms], |row| row.get(0))?)
    }

    /// The message with this number, if it waits and was tried.
    pub(crate) fn find_tried(&self, seq: i64) -> Result<Option<WaitingRow>> {
        let text = format!(
            "SELECT {COLUMNS} FROM attempts a JOIN messages m ON m.seq = a.seq \
         JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = a.seq WHERE a.seq = ?"
        );
        Ok(query(&self.db, &text, [seq])?.pop())
    }

    fn select(&self, rest: &str, values: impl Params) -> Result<Vec<WaitingRow>> {
        let text = if self.with_attempts > 0 {
            format!("SELECT {COLUMNS} FROM waiting w LEFT JOIN attempts a ON a.seq = w.seq {rest}")
        } else {
            format!("SELECT due_ms, w.seq, lane, size, redelivered, 0, NULL, 0, 0, 0, 0 FROM waiting w {rest}")
        };
        query(&self.db, &text, values)
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

const COLUMNS: &str =
    "w.due_ms, w.seq, lane, size, redelivered, attempts, next_ms, strikes, waited_ms, at_ms, is_unanswered";

fn query(db: &Connection, text: &str, values: impl Params) -> Result<Vec<WaitingRow>> {
    let row = |row: &Row<'_>| {
        Ok(WaitingRow {
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
