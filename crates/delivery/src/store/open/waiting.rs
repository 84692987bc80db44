//! The open messages with a row in `waiting`, in order of delivery (D4).

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::message::recurrence::NEVER_MS;
use crate::message::shares::tenants_at;
use crate::store::Store;
use crate::store::sql::{Broken, Result, cached, rows};
use crate::store::types::{Known, Position, WaitingRow};

impl Store {
    /// Writes a row in `waiting` for each of these messages: new messages that stay out of memory, and near messages
    /// that leave memory.
    pub(crate) fn hold(&mut self, held: &[WaitingRow]) -> Result<()> {
        for one in held {
            if !self.near.hold(one.seq) {
                return Err(Broken::Contradiction(format!("message {} is not near, and cannot be held", one.seq)));
            }
        }
        self.write_waiting(held.iter().collect())
    }

    pub(in crate::store) fn write_waiting(&mut self, mut held: Vec<&WaitingRow>) -> Result<()> {
        held.sort_unstable_by_key(|one| (one.due_ms, one.seq));
        let text = "INSERT INTO waiting (due_ms, seq, lane, size, redelivered, share) VALUES (?, ?, ?, ?, ?, ?)";
        let mut redelivered_ms = None;
        {
            let mut insert = cached(&self.db, text)?;
            for one in held {
                let share = Some(one.share).filter(|share| *share != 0);
                insert.execute((one.due_ms, one.seq, one.lane, one.size, one.redelivered, share))?;
                if one.share != 0 {
                    self.first_due.note(one.share, one.due_ms);
                }
                if one.redelivered {
                    redelivered_ms = Some(one.due_ms);
                }
            }
        }
        redelivered_ms.map_or(Ok(()), |due_ms| self.note_redelivered(due_ms))
    }

    /// Whether the message has no outcome.
    pub(crate) fn is_open(&self, known: &Known) -> Result<bool> {
        Ok(known.outcome.is_none() && self.is_open_at((known.due_ms, known.seq))?)
    }

    /// The same for a message whose outcome, if it has one, is delivery.
    pub(crate) fn is_open_at(&self, position: Position) -> Result<bool> {
        Ok(self.near.has(position.1) || is_waiting(&self.db, position)?)
    }

    /// The first due time in `waiting`.
    pub(crate) fn first_due_ms(&self) -> Result<Option<i64>> {
        Ok(first_due_ms(&self.db)?)
    }

    /// The next messages of the share in `waiting` after this position and due until `until_ms`, in order.
    pub(crate) fn plan(&self, share: i64, after: Position, until_ms: i64, limit: usize) -> Result<Vec<WaitingRow>> {
        let of = of_share(share);
        let rest =
            format!("WHERE {of} AND (due_ms, w.seq) > (?2, ?3) AND due_ms <= ?4 ORDER BY due_ms, w.seq LIMIT ?5");
        self.select(&rest, [share, after.0, after.1, until_ms, limit as i64])
    }

    /// The next share after this one with a row in `waiting`, of the tenants at this destination.
    pub(crate) fn next_share(&self, destination: i64, after: i64) -> Result<Option<i64>> {
        let (first, last) = tenants_at(destination);
        let text = "SELECT min(share) FROM waiting WHERE share > ? AND share <= ?";
        Ok(cached(&self.db, text)?.query_row([after.max(first - 1), last], |row| row.get(0))?)
    }

    /// The shares with messages that have attempts.
    pub(crate) fn tried_shares(&self) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        let mut next = cached(&self.db, "SELECT min(share) FROM attempts WHERE share > ?")?;
        let mut after = 0;
        while let Some(share) = next.query_row([after], |row| row.get::<_, Option<i64>>(0))? {
            found.push(share);
            after = share;
        }
        Ok(found)
    }

    /// Looks at the share's next `limit` rows from `start` on, but not past `through`. Returns the rows in these lanes,
    /// and the position of the last row it looked at.
    pub(crate) fn plan_lanes(
        &self,
        share: i64,
        lanes: &[i64],
        start: Position,
        through: Position,
        limit: usize,
    ) -> Result<(Vec<WaitingRow>, Position)> {
        let of = of_share(share);
        let within = format!(
            "WHERE {of} AND (due_ms, w.seq) >= (?2, ?3) AND (due_ms, w.seq) <= (?4, ?5) ORDER BY due_ms, w.seq"
        );
        let last = format!("SELECT due_ms, seq FROM waiting w {within} LIMIT 1 OFFSET ?6");
        let offset = limit.saturating_sub(1) as i64;
        let end: Option<Position> = cached(&self.db, &last)?
            .query_row([share, start.0, start.1, through.0, through.1, offset], |row| row.try_into())
            .optional()?;
        let end = end.unwrap_or(through);
        let mut found = self.select(&within, [share, start.0, start.1, end.0, end.1])?;
        let mut wanted = lanes.to_vec();
        wanted.sort_unstable();
        found.retain(|row| row.lane.is_some_and(|lane| wanted.binary_search(&lane).is_ok()));
        Ok((found, end))
    }

    /// All messages in `waiting` that may have been sent before.
    pub(crate) fn may_have_arrived(&self) -> Result<Vec<WaitingRow>> {
        let rest = "WHERE due_ms <= ? AND redelivered = 1 ORDER BY due_ms, w.seq";
        self.select(rest, [self.redelivered_until_ms])
    }

    /// The next `limit` messages of the share that wait for an attempt until `until_ms`, in the order of its time, after
    /// this position `(next_ms, seq)`.
    pub(crate) fn plan_tried(
        &self,
        share: i64,
        (next_ms, seq): (i64, i64),
        until_ms: i64,
        limit: usize,
    ) -> Result<Vec<WaitingRow>> {
        if self.with_attempts == 0 {
            return Ok(Vec::new());
        }
        let rest =
            "WHERE a.share = ? AND (a.next_ms, a.seq) > (?, ?) AND a.next_ms <= ? ORDER BY a.next_ms, a.seq LIMIT ?";
        query(&self.db, &of_tried(rest), [share, next_ms, seq, until_ms, limit as i64])
    }

    /// The time of the share's first next attempt after this time.
    pub(crate) fn next_tried_ms(&self, share: i64, after_ms: i64) -> Result<Option<i64>> {
        if self.with_attempts == 0 {
            return Ok(None);
        }
        Ok(cached(&self.db, "SELECT min(next_ms) FROM attempts WHERE share = ? AND next_ms > ?")?
            .query_row([share, after_ms], |row| row.get(0))?)
    }

    /// The message with this number, if it waits and was tried.
    pub(crate) fn find_tried(&self, seq: i64) -> Result<Option<WaitingRow>> {
        Ok(query(&self.db, &of_tried("WHERE a.seq = ?"), [seq])?.pop())
    }

    fn select(&self, rest: &str, values: impl Params) -> Result<Vec<WaitingRow>> {
        let text = if self.with_attempts > 0 {
            format!("SELECT {COLUMNS} FROM waiting w LEFT JOIN attempts a ON a.seq = w.seq {rest}")
        } else {
            format!(
                "SELECT due_ms, w.seq, lane, size, redelivered, 0, NULL, 0, 0, 0, 0, 0, share FROM waiting w {rest}"
            )
        };
        query(&self.db, &text, values)
    }
}

/// The rows of the share `?1`.
fn of_share(share: i64) -> &'static str {
    if share == 0 { "w.share IS NULL AND ?1 = 0" } else { "w.share = ?1" }
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

const COLUMNS: &str = "w.due_ms, w.seq, lane, size, redelivered, attempts, next_ms, counted, waited_ms, at_ms, is_unanswered, strikes, w.share";

/// The statement for messages with attempts.
fn of_tried(rest: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM attempts a JOIN messages m ON m.seq = a.seq \
         JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = a.seq {rest}"
    )
}

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
            counted: row.get::<_, Option<u32>>(7)?.unwrap_or(0),
            waited_ms: row.get::<_, Option<i64>>(8)?.unwrap_or(0),
            tried_ms: row.get::<_, Option<i64>>(9)?.unwrap_or(0),
            is_unanswered: row.get::<_, Option<bool>>(10)?.unwrap_or(false),
            strikes: row.get::<_, Option<u32>>(11)?.unwrap_or(0),
            share: row.get::<_, Option<i64>>(12)?.unwrap_or(0),
        })
    };
    Ok(rows(db, text, values, row)?)
}
