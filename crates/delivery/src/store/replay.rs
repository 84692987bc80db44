//! How another file gets the content of a log, and the texts that both files have a number for (rule D21).

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::log::{Log, changed};
use super::sql::{Broken, Result, rows};
use super::tables::meta;

impl Log {
    /// Goes on with the texts that this file has.
    pub(super) fn of(db: &Connection) -> Result<Self> {
        let numbers = texts(db)?.into_iter().zip(1..).collect();
        Ok(Self { numbers, ..Self::default() })
    }

    /// The statements since the last call. Their new texts are kept in the file.
    pub(super) fn take(&mut self, db: &Connection) -> Result<Vec<u8>> {
        let first = self.numbers.len() + 1 - self.new.len();
        for (place, text) in self.new.drain(..).enumerate() {
            keep_text(db, first + place, &text)?;
        }
        Ok(std::mem::take(&mut self.bytes))
    }
}

/// The texts with the numbers from 1 on.
fn texts(db: &Connection) -> Result<Vec<String>> {
    Ok(rows(db, "SELECT value FROM meta WHERE name GLOB 'text [0-9]*' ORDER BY name", [], |row| row.get(0))?)
}

fn keep_text(db: &Connection, number: usize, text: &str) -> Result<()> {
    meta::put(db, &format!("text {number:06}"), text)
}

/// Runs statements of a log.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    texts: Vec<String>,
}

impl Replay {
    /// Goes on with the texts that this file has.
    pub(crate) fn of(db: &Connection) -> Result<Self> {
        Ok(Self { texts: texts(db)? })
    }

    /// Runs the statements of a transaction. Call it between a begin and a commit.
    ///
    /// # Errors
    /// The body can't be read, or a statement changed another number of rows: the file has another past.
    pub(crate) fn run(&mut self, db: &Connection, body: &[u8]) -> Result<()> {
        let mut rest = Rest(body);
        while !rest.0.is_empty() {
            let number = rest.varint()? as usize;
            if number == self.texts.len() + 1 {
                let text = rest.text()?;
                keep_text(db, number, text)?;
                self.texts.push(text.to_owned());
            }
            let text = match number {
                0 => rest.text()?,
                _ => self.texts.get(number - 1).ok_or_else(damaged)?,
            };
            let mut statement = db.prepare_cached(text)?;
            for place in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(place, rest.value()?)?;
            }
            let mut rows = statement.raw_query(); // some return rows
            while rows.next()?.is_some() {}
            drop(rows);
            let (expected, found) = (rest.varint()?, changed(db, text));
            if expected != found {
                let what =
                    format!("{text:?} changed {found} rows here, and {expected} in the store that wrote the log");
                return Err(Broken::Contradiction(what));
            }
        }
        Ok(())
    }
}

/// The bytes that are left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn varint(&mut self) -> Result<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first().filter(|_| shift < 64).ok_or_else(damaged)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged())
    }

    fn value(&mut self) -> Result<ToSqlOutput<'a>> {
        let (kind, rest) = self.0.split_first().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(match kind {
            0 => ToSqlOutput::Owned(Value::Null),
            1 => {
                let number = self.varint()?;
                ToSqlOutput::Owned(Value::Integer((number >> 1) as i64 ^ -((number & 1) as i64)))
            }
            2 => ToSqlOutput::Borrowed(ValueRef::Text(self.bytes()?)),
            3 => ToSqlOutput::Borrowed(ValueRef::Blob(self.bytes()?)),
            _ => return Err(damaged()),
        })
    }
}

fn damaged() -> Broken {
    Broken::Contradiction("a row of the log can't be read".to_owned())
}
