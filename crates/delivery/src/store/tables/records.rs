//! What the store keeps of records beside messages: dead letters, cancels whose message has not come, and how far each input
//! was read.
//!
//! - **Dead letters** (D2) are committed together with their cause, and written out afterwards. A crash may come before the store
//!   notes that letters were written out. They are then written once more: a letter may appear twice, but is never missing. The
//!   store keeps at most the last 100,000 written letters, and at most 256 MiB of records and data of events. If the message of a letter is
//!   tried again, its letter is removed (D16).
//! - **Cancels** (D7) have times from the store's own clock (`retention.rs`), so a step of the wall clock does not remove any. A
//!   cancel of an occurrence that its rule has not made yet is not forgotten (D19).
//! - **Inputs** (D5, D11) are committed together with their messages. An input is known by its name. It counts as the same
//!   input as before if it still begins with the same bytes.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::meta;
use crate::message::incoming::Digest;
use crate::message::recurrence::occurrence_of;
use crate::store::sql::{Result, cached, execute, rows};
use crate::store::types::Letters;
use crate::store::{Known, Letter, Progress, Store};

const KEPT: i64 = 100_000;
const KEPT_BYTES: u64 = 256 << 20;
const READ: i64 = 1_000;
const READ_BYTES: usize = 4 << 20;

/// The record of a message, the reason, and the data of the event that let it go.
type Told = (Vec<u8>, String, Option<String>);

pub(in crate::store) fn load_letters(db: &Connection) -> Result<Letters> {
    let text = "SELECT ifnull(max(n), 0), ifnull(sum(octet_length(record) + ifnull(octet_length(event), 0)), 0) FROM dead_letters";
    let (last, bytes): (i64, i64) = cached(db, text)?.query_row([], |row| row.try_into())?;
    let written = meta::get_int(db, "letters_written")?;
    Ok(Letters { last: last.max(written), written, bytes: bytes as u64 }) // the last letters may be gone
}

impl Store {
    /// Keeps dead letters. They are written out after the commit.
    pub(crate) fn put_letters(&mut self, letters: &[Letter], at_ms: i64) -> Result<()> {
        let text = "INSERT INTO dead_letters (n, at_ms, source, line, reason, allowed, record, destination, tenant, event) \
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT name FROM bodies b JOIN destinations d ON d.share = iif(b.share >> 32, (b.share >> 32) - 1, b.share) \
                        WHERE ?3 = 'delivery' AND b.seq = ?4), (SELECT name FROM bodies b JOIN tenants t ON t.tenant = b.share & 4294967295 \
                        WHERE ?3 = 'delivery' AND b.seq = ?4 AND b.share >> 32), \
                        (SELECT ifnull(data, '') FROM waits w LEFT JOIN events e ON e.n = w.event WHERE ?3 = 'delivery' AND w.seq = ?4)) \
                    RETURNING octet_length(record) + ifnull(octet_length(event), 0)";
        for letter in letters {
            self.letters.last += 1;
            let Letter { source, line, reason, allowed, record } = letter;
            let values = params![self.letters.last, at_ms, source, line, reason, allowed, record];
            let bytes: Vec<i64> = cached(&self.db, text)?.returned(values, |row| row.get(0))?;
            self.letters.bytes += bytes.iter().sum::<i64>() as u64;
        }
        Ok(())
    }

    /// The record in the dead letter of a message, the reason, and the data of the event that let it go. `None`: the letter
    /// is gone.
    pub(crate) fn letter(&self, seq: i64) -> Result<Option<Told>> {
        Ok(find(&self.db, seq)?.map(|(_, told)| told))
    }

    /// Removes the newest dead letter of a message.
    pub(crate) fn drop_letter(&mut self, seq: i64) -> Result<()> {
        if let Some((n, (record, _, event))) = find(&self.db, seq)? {
            execute(&self.db, "DELETE FROM dead_letters WHERE n = ?", [n])?;
            self.letters.bytes -= (record.len() + event.map_or(0, |data| data.len())) as u64;
        }
        Ok(())
    }

    /// The number of the last letter.
    pub(crate) fn last_letter(&self) -> i64 {
        self.letters.last
    }

    /// The next dead letters to write out, bounded by count and bytes. Pass the returned number to `letters_written`
    /// afterwards.
    pub(crate) fn unwritten_letters(&self) -> Result<(Vec<Letter>, i64)> {
        unwritten(&self.db, self.letters.last)
    }

    /// Whether a dead letter may not be written out yet.
    pub(crate) fn has_unwritten_letters(&self) -> bool {
        self.letters.last > self.letters.written
    }

    /// Notes that all letters up to this one are written out. Old letters are removed.
    pub(crate) fn letters_written(&mut self, through: i64) -> Result<()> {
        meta::put(&self.db, "letters_written", through)?;
        self.letters.written = through;
        let text = "SELECT n, octet_length(record) + ifnull(octet_length(event), 0) FROM dead_letters WHERE n < ? ORDER BY n LIMIT ?";
        let oldest: Vec<(i64, i64)> = rows(&self.db, text, [through, 2 * READ], |row| row.try_into())?;
        for (n, bytes) in oldest {
            if n > through - KEPT && self.letters.bytes <= KEPT_BYTES {
                break;
            }
            execute(&self.db, "DELETE FROM dead_letters WHERE n = ?", [n])?;
            self.letters.bytes -= bytes as u64;
        }
        Ok(())
    }
}

/// The number, the record, the reason and the event of the newest letter of this message.
fn find(db: &Connection, seq: i64) -> Result<Option<(i64, Told)>> {
    let text = "SELECT n, record, reason, event FROM dead_letters WHERE source = 'delivery' AND line = ? ORDER BY n DESC LIMIT 1";
    let told = |row: &Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?)));
    Ok(cached(db, text)?.query_row([seq], told).optional()?)
}

/// The next letters to write out, and the number of the last of them. If there are no more letters, the number of the
/// last letter that ever was.
fn unwritten(db: &Connection, last: i64) -> Result<(Vec<Letter>, i64)> {
    let mut through = meta::get_int(db, "letters_written")?;
    let text = "SELECT n, source, line, reason, allowed, record FROM dead_letters WHERE n > ? ORDER BY n LIMIT ?";
    let mut select = cached(db, text)?;
    let mut unread = select.query([through, READ])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < READ_BYTES {
        let Some(row) = unread.next()? else {
            if found.len() < READ as usize {
                through = last; // the last letters may be gone
            }
            break;
        };
        through = row.get(0)?;
        let letter = Letter {
            source: row.get(1)?,
            line: row.get(2)?,
            reason: row.get(3)?,
            allowed: row.get(4)?,
            record: row.get(5)?,
        };
        bytes += letter.record.len();
        found.push(letter);
    }
    Ok((found, through))
}

impl Store {
    /// Remembers a cancel for a message that is not known. When the message comes, it is cancelled (D7). The store
    /// keeps the cancel as long as names, and at least until `until_ms`.
    pub(crate) fn remember_cancel(
        &mut self,
        key: Option<&str>,
        id: &str,
        now_ms: i64,
        until_ms: Option<i64>,
    ) -> Result<()> {
        let name = (self.number)(Digest::of(key, id));
        let known = "SELECT 1 FROM cancels WHERE name = ? AND id = ? AND key IS ?";
        if self.cancels > 0 && cached(&self.db, known)?.exists(params![name, id, key])? {
            return Ok(());
        }
        let at_ms = self.retention.now_ms();
        let until_ms = until_ms.map_or(0, |until_ms| at_ms.saturating_add(until_ms.saturating_sub(now_ms)));
        let text = "INSERT INTO cancels (name, key, id, at_ms, until_ms) VALUES (?, ?, ?, ?, ?)";
        execute(&self.db, text, params![name, key, id, at_ms, until_ms])?;
        self.cancels += 1;
        Ok(())
    }

    /// Forgets old cancels, a few at a time.
    pub(in crate::store) fn forget_cancels(&mut self) -> Result<()> {
        for (row, key, id) in self.retention.old_cancels(&self.db)? {
            if !self.may_come(key.as_deref(), &id)? {
                execute(&self.db, "DELETE FROM cancels WHERE rowid = ?", [row])?;
                self.cancels -= 1;
            }
        }
        Ok(())
    }

    /// Whether a rule may still make the occurrence with this name. The rule decides, and not the clock: a rule may be late.
    fn may_come(&self, key: Option<&str>, id: &str) -> Result<bool> {
        if self.recurring == 0 {
            return Ok(false);
        }
        let Some((of, at_ms)) = occurrence_of(id) else { return Ok(false) };
        let Some(rule) = self.find(key, of)?.filter(Known::is_open_rule) else { return Ok(false) };
        Ok(self.occurrence_of(rule.seq)?.is_some_and(|(_, open)| open.at_ms <= at_ms))
    }
}

#[cfg(test)]
impl Store {
    /// Whether a cancel of this name waits for its message.
    pub(crate) fn remembers_cancel(&self, key: Option<&str>, id: &str) -> rusqlite::Result<bool> {
        let text = "SELECT 1 FROM cancels WHERE id = ? AND key IS ?";
        cached(&self.db, text)?.exists(params![id, key])
    }
}

impl Store {
    /// The progress of each input, by name.
    pub(crate) fn inputs(&self) -> Result<HashMap<String, Progress>> {
        let progress = |row: &rusqlite::Row<'_>| {
            let (source, line, size): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((source.clone(), Progress { source, line, size, digest: row.get(3)? }))
        };
        let found = rows(&self.db, "SELECT source, line, size, digest FROM inputs", [], progress)?;
        Ok(found.into_iter().collect())
    }

    /// Replaces the stored progress of this input.
    pub(crate) fn put_input(&mut self, progress: &Progress) -> Result<()> {
        let Progress { source, line, size, digest } = progress;
        let text = "INSERT OR REPLACE INTO inputs (source, line, size, digest) VALUES (?, ?, ?, ?)";
        execute(&self.db, text, params![source, line, size, digest]).map(drop)
    }
}
