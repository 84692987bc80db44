//! The open occurrences of recurring messages (D19). The recurring message itself is an open message that is never
//! due, so the store keeps its name, payload and end like any other message's. An occurrence is a message of its own.

use rusqlite::{OptionalExtension, params};
use rustc_hash::FxHashSet;

use super::accept;
use crate::store::sql::{Broken, Result, cached};
use crate::store::{Done, Known, Position, Store};

/// An occurrence of a recurring message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// The number of the recurring message.
    pub of_seq: i64,
    /// The due time by the rule.
    pub at_ms: i64,
    /// The time of the occurrence before. All occurrences up to it had their outcome, or were left out.
    pub after_ms: Option<i64>,
}

impl Store {
    /// Notes that this open message is an occurrence of a recurring message.
    pub(crate) fn put_occurrence(&mut self, seq: i64, it: Occurrence) -> Result<()> {
        let text = "INSERT INTO occurrences (seq, of_seq, at_ms, after_ms) VALUES (?, ?, ?, ?)";
        cached(&self.db, text)?.execute(params![seq, it.of_seq, it.at_ms, it.after_ms])?;
        Ok(())
    }

    /// Removes finished messages from the occurrences, and returns these occurrences. An occurrence that continues
    /// under another number was moved before this call.
    pub(crate) fn take_occurrences(&mut self, done: &[Done]) -> Result<Vec<Occurrence>> {
        let mut delete = cached(&self.db, "DELETE FROM occurrences WHERE seq = ? RETURNING of_seq, at_ms, after_ms")?;
        let mut ended = Vec::new();
        for one in done {
            let row = |row: &rusqlite::Row<'_>| {
                Ok(Occurrence { of_seq: row.get(0)?, at_ms: row.get(1)?, after_ms: row.get(2)? })
            };
            ended.extend(delete.query_row([one.seq], row).optional()?);
        }
        Ok(ended)
    }

    /// Moves an occurrence to a new number, if the message is one.
    pub(crate) fn move_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<()> {
        if self.recurring == 0 {
            return Ok(());
        }
        cached(&self.db, "UPDATE occurrences SET seq = ? WHERE seq = ?")?.execute([to_seq, from_seq])?;
        Ok(())
    }

    /// Gives the occurrence of a recurring message to another recurring message.
    pub(crate) fn give_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<()> {
        cached(&self.db, "UPDATE occurrences SET of_seq = ? WHERE of_seq = ?")?.execute([to_seq, from_seq])?;
        Ok(())
    }

    /// The open occurrence of a recurring message.
    pub(crate) fn occurrence_of(&self, of_seq: i64) -> Result<Option<(Known, Occurrence)>> {
        let mut select = cached(&self.db, "SELECT seq, at_ms, after_ms FROM occurrences WHERE of_seq = ?")?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get(0)?, Occurrence { of_seq, at_ms: row.get(1)?, after_ms: row.get(2)? }))
        };
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

    /// Turns an occurrence into an ordinary message.
    pub(crate) fn drop_occurrence(&mut self, seq: i64) -> Result<()> {
        cached(&self.db, "DELETE FROM occurrences WHERE seq = ?")?.execute([seq])?;
        Ok(())
    }
}
