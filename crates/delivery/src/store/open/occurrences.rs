//! The open occurrences of recurring messages (D19). The recurring message itself is an open message that is never
//! due, so the store keeps its name, payload and end like any other message's. An occurrence is a message of its own.
//!
//! The store adds up the steps of the wall clock, and an occurrence has the sum at which it was made. So each occurrence
//! knows how far the clock was stepped since then, whatever became of the process meanwhile.

use rusqlite::{Connection, OptionalExtension, Row};
use rustc_hash::FxHashSet;

use super::accept;
use crate::message::incoming::Digest;
use crate::message::recurrence::Recurrence;
use crate::store::sql::{Broken, Result, cached, execute, rows};
use crate::store::tables::meta;
use crate::store::{Done, Known, Position, Steps, Store};

/// An occurrence of a recurring message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// The number of the recurring message.
    pub of_seq: i64,
    /// The due time by the rule.
    pub at_ms: i64,
    /// The time of the occurrence before. All occurrences up to it had their outcome, or were left out.
    pub after_ms: Option<i64>,
    /// The wall clock when it was made.
    pub made_ms: i64,
    /// [`Steps::sum_ms`] when it was made.
    pub stepped_ms: i64,
}

impl Occurrence {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (of_seq, at_ms, after_ms) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Self { of_seq, at_ms, after_ms, made_ms: row.get(4)?, stepped_ms: row.get(5)? })
    }
}

pub(in crate::store) fn load_steps(db: &Connection) -> Result<Steps> {
    let (count, sum_ms) = (meta::get_int(db, "steps")?, meta::get_int(db, "stepped_ms")?);
    Ok(Steps { count, sum_ms, followed: meta::get(db, "step_followed_seq")? })
}

const COLUMNS: &str = "seq, of_seq, at_ms, after_ms, made_ms, stepped_ms";

impl Store {
    /// Notes that this open message is an occurrence of a recurring message.
    pub(crate) fn put_occurrence(&mut self, seq: i64, it: Occurrence) -> Result<()> {
        let text = "INSERT INTO occurrences VALUES (?, ?, ?, ?, ?, ?)";
        execute(&self.db, text, (seq, it.of_seq, it.at_ms, it.after_ms, it.made_ms, it.stepped_ms)).map(drop)
    }

    /// Changes the times of the open occurrence of a recurring message.
    pub(crate) fn change_occurrence(&mut self, it: Occurrence) -> Result<()> {
        let text = "UPDATE occurrences SET at_ms = ?, after_ms = ?, stepped_ms = ? WHERE of_seq = ?";
        execute(&self.db, text, (it.at_ms, it.after_ms, it.stepped_ms, it.of_seq)).map(drop)
    }

    /// Removes finished messages from the occurrences, and returns these occurrences. An occurrence that continues
    /// under another number was moved before this call.
    pub(crate) fn take_occurrences(&mut self, done: &[Done]) -> Result<Vec<Occurrence>> {
        let mut delete = cached(&self.db, &format!("DELETE FROM occurrences WHERE seq = ? RETURNING {COLUMNS}"))?;
        let mut ended = Vec::new();
        for one in done {
            ended.extend(delete.returned([one.seq], Occurrence::read)?);
        }
        Ok(ended)
    }

    /// Moves an occurrence to a new number, if the message is one.
    pub(crate) fn move_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<()> {
        if self.recurring == 0 {
            return Ok(());
        }
        execute(&self.db, "UPDATE occurrences SET seq = ? WHERE seq = ?", [to_seq, from_seq]).map(drop)
    }

    /// Gives the occurrence of a recurring message to another recurring message.
    pub(crate) fn give_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<()> {
        execute(&self.db, "UPDATE occurrences SET of_seq = ? WHERE of_seq = ?", [to_seq, from_seq]).map(drop)
    }

    /// The open occurrence of a recurring message.
    pub(crate) fn occurrence_of(&self, of_seq: i64) -> Result<Option<(Known, Occurrence)>> {
        let mut select = cached(&self.db, &format!("SELECT {COLUMNS} FROM occurrences WHERE of_seq = ?"))?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, Occurrence::read(row)?));
        let Some((seq, occurrence)) = select.query_row([of_seq], row).optional()? else { return Ok(None) };
        let known = accept::known_of(&self.db, seq)?;
        let known = known.ok_or_else(|| Broken::Contradiction(format!("the occurrence {seq} is no message")))?;
        Ok(Some((known, occurrence)))
    }

    /// The occurrences among these messages.
    pub(crate) fn occurrences_among(&self, found: &[Position]) -> Result<FxHashSet<i64>> {
        let mut select = cached(&self.db, "SELECT 1 FROM occurrences WHERE seq = ?")?;
        let mut among = FxHashSet::default();
        for (_, seq) in found {
            if select.exists([seq])? {
                among.insert(*seq);
            }
        }
        Ok(among)
    }

    /// The steps of the wall clock.
    pub(crate) fn steps(&self) -> Steps {
        self.steps
    }

    /// Notes the steps of the wall clock, and how far the occurrences have followed.
    pub(crate) fn put_steps(&mut self, steps: Steps) -> Result<()> {
        self.steps = steps;
        meta::put(&self.db, "steps", steps.count)?;
        meta::put(&self.db, "stepped_ms", steps.sum_ms)?;
        meta::put(&self.db, "step_followed_seq", steps.followed)
    }

    /// The next recurring messages after this number, in order, each with the bytes of its payload.
    pub(crate) fn rules_after(&self, of_seq: i64, limit: i64) -> Result<Vec<(i64, i64)>> {
        let text = "SELECT o.of_seq, octet_length(b.payload) FROM occurrences o JOIN bodies b ON b.seq = o.of_seq \
                    WHERE o.of_seq > ? ORDER BY o.of_seq LIMIT ?";
        Ok(rows(&self.db, text, [of_seq, limit], |row| row.try_into())?)
    }

    /// Stores another rule of a recurring message.
    pub(crate) fn put_rule(&mut self, of_seq: i64, rule: &Recurrence) -> Result<()> {
        execute(&self.db, "UPDATE bodies SET recurrence = ? WHERE seq = ?", (rule.to_json(), of_seq)).map(drop)
    }

    /// If a cancel of this name waits for its message, it waits for another id of the same key from now on.
    pub(crate) fn rename_cancel(&mut self, key: Option<&str>, id: &str, to: &str) -> Result<()> {
        let number = |id| (self.number)(Digest::of(key, id));
        let text = "UPDATE cancels SET name = ?, id = ? WHERE name = ? AND id = ? AND key IS ?";
        execute(&self.db, text, (number(to), to, number(id), id, key)).map(drop)
    }

    /// Turns an occurrence into an ordinary message.
    pub(crate) fn drop_occurrence(&mut self, seq: i64) -> Result<()> {
        execute(&self.db, "DELETE FROM occurrences WHERE seq = ?", [seq]).map(drop)
    }
}
