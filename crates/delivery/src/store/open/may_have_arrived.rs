//! Notes which messages may have been sent without a committed outcome. After a crash they are delivered again, as
//! messages that may have arrived (D5), and get a strike (D6).
//!
//! Before a message is sent, the store knows that it may be. Three values tell this:
//!
//! - `sent_until_ms`: only messages due until this time may be sent.
//! - `cursors`: for each destination, its rows of `waiting` up to this position were read into memory.
//! - `held_back`: for each of these lanes, only messages before its position are in memory.
//!
//! Example: of a million overdue messages of one key, only the few messages in memory may have been sent.

use rusqlite::{Connection, params};

use crate::store::sql::{Result, cached, execute, rows};
use crate::store::tables::meta;
use crate::store::{Position, Store};

impl Store {
    /// Notes that all messages in memory due until `sent_until_ms` may be sent at any moment from now on. `None`:
    /// everything that was sent is committed.
    ///
    /// In memory are the near messages, and the rows of `waiting` up to the cursor of their share; `cursors` has those
    /// that have moved. A lane that is held back has only its messages before a certain position in memory.
    /// `held_back_changes` lists changed lanes: each with its new position, or `None` if it is not held back any more.
    pub(crate) fn note_send_limit(
        &mut self,
        sent_until_ms: Option<i64>,
        cursors: &[(i64, Position)],
        held_back_changes: &[(i64, Option<Position>)],
    ) -> Result<()> {
        let db = &self.db;
        if sent_until_ms.is_none() {
            return clear(db);
        }
        meta::put(db, "sent_until_ms", sent_until_ms)?;
        for (share, (due_ms, seq)) in cursors {
            cached(db, "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)")?.execute([share, due_ms, seq])?;
        }
        for (lane, position) in held_back_changes {
            match position {
                Some((due_ms, seq)) => cached(db, "INSERT OR REPLACE INTO held_back VALUES (?, ?, ?)")?
                    .execute(params![lane, due_ms, seq])?,
                None => cached(db, "DELETE FROM held_back WHERE lane = ?")?.execute([lane])?,
            };
        }
        Ok(())
    }

    /// Memory has no message of this destination any more, and all outcomes are committed.
    pub(crate) fn forget_cursor(&mut self, share: i64) -> Result<()> {
        cached(&self.db, "DELETE FROM cursors WHERE share = ?")?.execute([share])?;
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

    /// Leaves out what may have arrived, of these messages with a row in `waiting`, or without.
    pub(crate) fn leave_out_redelivered(&self, found: &mut Vec<Position>) -> Result<()> {
        let text = "SELECT 1 FROM waiting WHERE due_ms = ? AND seq = ? AND redelivered = 1";
        let mut marked = cached(&self.db, text)?;
        let mut failed = Ok(());
        found.retain(|it| {
            !marked.exists(*it).unwrap_or_else(|error| {
                failed = Err(error.into());
                false
            })
        });
        failed
    }

    /// Notes how long a send of this process may take, in milliseconds. Returns the same of this process and of the one before, with
    /// their named destinations.
    pub(crate) fn note_longest_send(&mut self, ms: i64) -> Result<i64> {
        let text =
            "SELECT ifnull(max(json_extract(settings, '$.sink_timeout_s')), 0) FROM destinations WHERE settings <> ''";
        let named_s: f64 = self.db.query_row(text, [], |row| row.get(0))?;
        let before_ms = meta::get_int(&self.db, LONGEST_SEND)?;
        self.begin()?;
        meta::put(&self.db, LONGEST_SEND, ms)?;
        self.commit()?;
        Ok(ms.max(before_ms).max((named_s * 1_000.0) as i64))
    }

    /// Notes that messages whose last attempt had no answer may have arrived.
    pub(crate) fn note_unanswered(&mut self) -> Result<()> {
        self.redelivered_until_ms = note_may_have_arrived_unanswered(&self.db, self.redelivered_until_ms)?;
        Ok(())
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
    for (share, (due_ms, seq)) in cursors(db)? {
        let text = format!("UPDATE waiting SET redelivered = 1 WHERE redelivered = 0 AND {}", in_memory(share));
        cached(db, &text)?.execute([until_ms, due_ms, seq, share])?;
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
    let text = format!(
        "UPDATE waiting SET redelivered = 1 WHERE redelivered = 0 AND (due_ms, seq) IN ({found}) RETURNING due_ms"
    );
    let marked: Vec<i64> = cached(db, &text)?.returned((), |row| row.get(0))?;
    let Some(last_ms) = marked.into_iter().max() else { return Ok(until_ms) };
    meta::put(db, "redelivered_until_ms", until_ms.max(last_ms))?;
    Ok(until_ms.max(last_ms))
}

/// The rows of `waiting` of the share `?4` that were in memory, and due until `?1`. The cursor is `(?2, ?3)`.
pub(in crate::store) fn in_memory(share: i64) -> String {
    let of_share = if share == 0 { "waiting.share IS NULL AND ?4 = 0" } else { "waiting.share = ?4" };
    format!(
        "{of_share} AND (waiting.due_ms, waiting.seq) <= (?2, ?3) AND waiting.due_ms <= ?1 AND NOT EXISTS (\
         SELECT 1 FROM held_back h WHERE h.lane = waiting.lane AND (waiting.due_ms, waiting.seq) >= (h.due_ms, h.seq))"
    )
}

/// The last position of each share that was read into memory.
fn cursors(db: &Connection) -> Result<Vec<(i64, Position)>> {
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
    Ok(rows(db, "SELECT share, due_ms, seq FROM cursors", [], row)?)
}

/// The limit that an ended process left: until when messages may have been sent.
pub(in crate::store) struct Limit {
    until_ms: i64,
    /// The same on the clock of the table of attempts.
    steady_until_ms: i64,
    cursors: Vec<(i64, Position)>,
}

impl Limit {
    /// `None`: everything that was sent is committed.
    pub(in crate::store) fn load(db: &Connection) -> Result<Option<Self>> {
        let Some(until_ms) = meta::get(db, "sent_until_ms")? else { return Ok(None) };
        let steady_until_ms = meta::get(db, STEADY_UNTIL)?.unwrap_or(until_ms);
        Ok(Some(Self { until_ms, steady_until_ms, cursors: cursors(db)? }))
    }

    /// Gives a strike to each message with a row in `waiting` whose send had begun, or may have (D6). A message with two
    /// strikes or more gets one only if it was noted. A message that waits for an attempt after the limit gets none.
    pub(in crate::store) fn give_strikes(&self, db: &Connection) -> Result<()> {
        let noted = "UPDATE attempts SET strikes = strikes + 1 WHERE noted = 1 AND (next_ms IS NULL OR next_ms <= ?)";
        execute(db, noted, [self.steady_until_ms])?;
        for (share, (due_ms, seq)) in &self.cursors {
            let values = [self.until_ms, *due_ms, *seq, *share, self.steady_until_ms];
            execute(db, &give(&in_memory(*share)), values)?;
        }
        Ok(())
    }

    /// The same for these messages, which have a row since then.
    pub(in crate::store) fn give_strikes_to(&self, db: &Connection, near: &[Position]) -> Result<()> {
        let mut one = cached(db, &give("due_ms <= ?1 AND due_ms = ?2 AND seq = ?3 AND ?4 = 0"))?;
        for (due_ms, seq) in near {
            one.execute([self.until_ms, *due_ms, *seq, 0, self.steady_until_ms])?;
        }
        Ok(())
    }
}

fn give(of: &str) -> String {
    format!(
        "INSERT INTO attempts (seq, attempts, strikes, share) SELECT waiting.seq, 0, 1, ifnull(waiting.share, 0) FROM waiting \
         WHERE {of} AND NOT EXISTS \
         (SELECT 1 FROM attempts a WHERE a.seq = waiting.seq AND (a.next_ms > ?5 OR a.strikes >= 2 OR a.noted = 1)) \
         ON CONFLICT (seq) DO UPDATE SET strikes = strikes + 1"
    )
}

/// Set in `meta` beside the limit: its time on the clock of the table of attempts, which is not stepped.
pub(crate) const STEADY_UNTIL: &str = "steady_until_ms";

/// For a replicated store, in `meta`: the longest time that a send of the last owner may take.
const LONGEST_SEND: &str = "longest_send_ms";

pub(in crate::store) fn clear(db: &Connection) -> Result<()> {
    for name in ["sent_until_ms", STEADY_UNTIL] {
        meta::delete(db, name)?;
    }
    cached(db, "DELETE FROM cursors")?.execute(())?;
    cached(db, "DELETE FROM held_back")?.execute(())?;
    Ok(())
}
