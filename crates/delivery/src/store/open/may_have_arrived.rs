//! Notes which messages may have been sent without a committed outcome. After a crash they are delivered again, as
//! messages that may have arrived (D5).
//!
//! Before a message is sent, the store knows that it may be. Three values tell this:
//!
//! - `sent_until_ms`: only messages due until this time may be sent.
//! - `cursor`: rows of `waiting` up to this position were read into memory.
//! - `held_back`: for each of these lanes, only messages before its position are in memory.
//!
//! Example: of a million overdue messages of one key, only the few messages in memory may have been sent.

use rusqlite::{Connection, params};

use crate::store::sql::{Result, cached};
use crate::store::tables::meta;
use crate::store::{Position, Store};

impl Store {
    /// Notes that all messages in memory due until `sent_until_ms` may be sent at any moment from now on. `None`:
    /// everything that was sent is committed.
    ///
    /// In memory are the near messages, and the rows of `waiting` up to `cursor`. A lane that is held back has only
    /// its messages before a certain position in memory. `held_back_changes` lists changed lanes: each with its new
    /// position, or `None` if it is not held back any more.
    pub(crate) fn note_send_limit(
        &mut self,
        sent_until_ms: Option<i64>,
        cursor: Option<Position>,
        held_back_changes: &[(i64, Option<Position>)],
    ) -> Result<()> {
        let db = &self.db;
        if sent_until_ms.is_none() {
            return clear(db);
        }
        meta::put(db, "sent_until_ms", sent_until_ms)?;
        meta::put(db, "cursor_due_ms", cursor.map(|(due_ms, _)| due_ms))?;
        meta::put(db, "cursor_seq", cursor.map(|(_, seq)| seq))?;
        for (lane, position) in held_back_changes {
            match position {
                Some((due_ms, seq)) => cached(db, "INSERT OR REPLACE INTO held_back VALUES (?, ?, ?)")?
                    .execute(params![lane, due_ms, seq])?,
                None => cached(db, "DELETE FROM held_back WHERE lane = ?")?.execute([lane])?,
            };
        }
        Ok(())
    }

    /// Notes that these messages with a row in `waiting` were tried, and may have arrived.
    pub(crate) fn note_may_have_arrived(&mut self, positions: &[Position]) -> Result<()> {
        let text = "UPDATE waiting SET redelivered = 1 WHERE due_ms = ? AND seq = ?";
        for (due_ms, seq) in positions {
            cached(&self.db, text)?.execute([due_ms, seq])?;
        }
        positions.iter().map(|(due_ms, _)| *due_ms).max().map_or(Ok(()), |due_ms| self.note_redelivered(due_ms))
    }

    /// Notes the latest due time of messages that may have arrived. The store then finds them without reading all of
    /// `waiting`.
    pub(in crate::store) fn note_redelivered(&mut self, due_ms: i64) -> Result<()> {
        if due_ms > self.redelivered_until_ms {
            self.redelivered_until_ms = due_ms;
            meta::put(&self.db, "redelivered_until_ms", due_ms)?;
        }
        Ok(())
    }
}

/// After a crash: notes that messages in `waiting` may have arrived, if they may have been sent. Returns a time after which
/// no such message is due.
pub(in crate::store) fn note_may_have_arrived_at_crash(db: &Connection) -> Result<i64> {
    let before = meta::get(db, "redelivered_until_ms")?.unwrap_or(i64::MIN);
    let Some(until_ms) = meta::get::<i64>(db, "sent_until_ms")? else { return Ok(before) };
    let cursor = meta::get::<i64>(db, "cursor_due_ms")?.zip(meta::get::<i64>(db, "cursor_seq")?);
    if let Some((due_ms, seq)) = cursor {
        cached(
            db,
            "UPDATE waiting SET redelivered = 1 \
             WHERE (due_ms, seq) <= (?1, ?2) AND due_ms <= ?3 AND redelivered = 0 AND NOT EXISTS (\
               SELECT 1 FROM held_back h \
               WHERE h.lane = waiting.lane AND (waiting.due_ms, waiting.seq) >= (h.due_ms, h.seq))",
        )?
        .execute([due_ms, seq, until_ms])?;
    }
    clear(db)?;
    let until_ms = until_ms.max(before);
    meta::put(db, "redelivered_until_ms", until_ms)?;
    Ok(until_ms)
}

/// Notes that messages may have arrived if an attempt had no answer, wherever they waited. Returns a time after which no
/// such message is due, as [`note_may_have_arrived_at_crash`] does.
pub(in crate::store) fn note_may_have_arrived_unanswered(db: &Connection, until_ms: i64) -> Result<i64> {
    let found = "SELECT m.due_ms, m.seq FROM attempts a JOIN messages m ON m.seq = a.seq WHERE a.is_unanswered = 1";
    let marked: Vec<i64> = db
        .prepare(&format!(
            "UPDATE waiting SET redelivered = 1 WHERE redelivered = 0 AND (due_ms, seq) IN ({found}) RETURNING due_ms"
        ))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let Some(last_ms) = marked.into_iter().max() else { return Ok(until_ms) };
    meta::put(db, "redelivered_until_ms", until_ms.max(last_ms))?;
    Ok(until_ms.max(last_ms))
}

fn clear(db: &Connection) -> Result<()> {
    for name in ["sent_until_ms", "cursor_due_ms", "cursor_seq"] {
        meta::delete(db, name)?;
    }
    cached(db, "DELETE FROM held_back")?.execute([])?;
    Ok(())
}
