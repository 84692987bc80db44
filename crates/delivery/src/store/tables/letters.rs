//! Dead letters in the store (D2). A dead letter is committed together with its cause, and written out afterwards.
//!
//! A crash may come before the store notes that letters were written out. They are then written once more: a letter
//! may appear twice, but is never missing. The store keeps at most the last 100,000 written letters, and at most 256
//! MiB of records. If the message of a letter is tried again, its letter is removed (D16).

use rusqlite::{Connection, OptionalExtension, params};

use super::meta;
use crate::store::sql::{Result, cached};
use crate::store::types::Letters;
use crate::store::{Letter, Store};

const KEPT: i64 = 100_000;
const KEPT_BYTES: u64 = 256 << 20;
const READ: i64 = 1_000;
const READ_BYTES: usize = 4 << 20;

pub(in crate::store) fn load(db: &Connection) -> Result<Letters> {
    let text = "SELECT ifnull(max(n), 0), ifnull(sum(octet_length(record)), 0) FROM dead_letters";
    let (last, bytes): (i64, i64) = cached(db, text)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let written = meta::get_int(db, "letters_written")?;
    Ok(Letters { last: last.max(written), written, bytes: bytes as u64 }) // the last letters may be gone
}

impl Store {
    /// Keeps dead letters. They are written out after the commit.
    pub(crate) fn put_letters(&mut self, letters: &[Letter], at_ms: i64) -> Result<()> {
        let text = "INSERT INTO dead_letters (n, at_ms, source, line, reason, allowed, record) \
                    VALUES (?, ?, ?, ?, ?, ?, ?)";
        for letter in letters {
            self.letters.last += 1;
            self.letters.bytes += letter.record.len() as u64;
            let Letter { source, line, reason, allowed, record } = letter;
            let values = params![self.letters.last, at_ms, source, line, reason, allowed, record];
            cached(&self.db, text)?.execute(values)?;
        }
        Ok(())
    }

    /// The record in the dead letter of a message. `None`: the letter is gone.
    pub(crate) fn letter(&self, seq: i64) -> Result<Option<Vec<u8>>> {
        Ok(find(&self.db, seq)?.map(|(_, record)| record))
    }

    /// Removes the newest dead letter of a message.
    pub(crate) fn drop_letter(&mut self, seq: i64) -> Result<()> {
        if let Some((n, record)) = find(&self.db, seq)? {
            cached(&self.db, "DELETE FROM dead_letters WHERE n = ?")?.execute([n])?;
            self.letters.bytes -= record.len() as u64;
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
        let text = "SELECT n, octet_length(record) FROM dead_letters WHERE n < ? ORDER BY n LIMIT ?";
        let oldest: Vec<(i64, i64)> = cached(&self.db, text)?
            .query_map([through, 2 * READ], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (n, bytes) in oldest {
            if n > through - KEPT && self.letters.bytes <= KEPT_BYTES {
                break;
            }
            cached(&self.db, "DELETE FROM dead_letters WHERE n = ?")?.execute([n])?;
            self.letters.bytes -= bytes as u64;
        }
        Ok(())
    }
}

/// The number and the record of the newest letter of this message.
fn find(db: &Connection, seq: i64) -> Result<Option<(i64, Vec<u8>)>> {
    let text = "SELECT n, record FROM dead_letters WHERE source = 'delivery' AND line = ? ORDER BY n DESC LIMIT 1";
    Ok(cached(db, text)?.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The next letters to write out, and the number of the last of them. If there are no more letters, the number of the
/// last letter that ever was.
fn unwritten(db: &Connection, last: i64) -> Result<(Vec<Letter>, i64)> {
    let mut through = meta::get_int(db, "letters_written")?;
    let text = "SELECT n, source, line, reason, allowed, record FROM dead_letters WHERE n > ? ORDER BY n LIMIT ?";
    let mut select = cached(db, text)?;
    let mut rows = select.query([through, READ])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < READ_BYTES {
        let Some(row) = rows.next()? else {
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
