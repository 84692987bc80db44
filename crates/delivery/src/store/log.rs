//! What a transaction writes, as statements with their values, and how another file gets the same content (rule D21).
//!
//! ```text
//! body      := statement*
//! statement := text value* changed
//! text      := number | number bytes      the bytes are there where the number is new, or 0
//! ```
//!
//! Numbers are varints. A text keeps its number, and both sides keep it in `meta`. Statements about the table of one run have the number 0, because
//! there is no end of such texts.

use std::cell::{Cell, RefCell};

use rusqlite::Connection;
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rustc_hash::FxHashMap;

use super::sql::{Broken, Result, rows};
use super::tables::meta;

std::thread_local! {
    /// The log of the transaction that is open on this thread.
    static OPEN: RefCell<Option<Log>> = const { RefCell::new(None) };
    /// Whether it is open: each statement asks.
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// The statements since the last [`Log::take`], and the texts that have a number.
#[derive(Debug, Default)]
pub(crate) struct Log {
    numbers: FxHashMap<String, u64>,
    new: Vec<String>,
    bytes: Vec<u8>,
}

impl Log {
    /// From now on, statements of this thread are noted here, or nowhere.
    pub(super) fn open(log: Option<Self>) {
        IS_OPEN.set(log.is_some());
        OPEN.set(log);
    }

    /// Ends [`Log::open`].
    pub(super) fn close() -> Option<Self> {
        IS_OPEN.set(false);
        OPEN.take()
    }

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

/// Whether statements of this thread are noted.
pub(super) fn is_open() -> bool {
    IS_OPEN.get()
}

/// Notes a statement that is about to run. Then come its values, with [`note_value`], and how many rows it changed.
pub(super) fn note_text(text: &str) {
    with(|log| {
        let known = log.numbers.get(text).copied();
        let new = if text.contains("run_") { 0 } else { log.numbers.len() as u64 + 1 };
        put_varint(&mut log.bytes, known.unwrap_or(new));
        if known.is_none() {
            put_bytes(&mut log.bytes, text.as_bytes());
        }
        if known.is_none() && new > 0 {
            log.numbers.insert(text.to_owned(), new);
            log.new.push(text.to_owned());
        }
    });
}

pub(super) fn note_value(value: &dyn ToSql) -> rusqlite::Result<()> {
    let value = value.to_sql()?;
    let value = match &value {
        ToSqlOutput::Borrowed(it) => *it,
        ToSqlOutput::Owned(it) => ValueRef::from(it),
        _ => unreachable!("the store binds values alone"),
    };
    with(|log| match value {
        ValueRef::Null => log.bytes.push(0),
        ValueRef::Integer(it) => {
            log.bytes.push(1);
            put_varint(&mut log.bytes, ((it << 1) ^ (it >> 63)) as u64);
        }
        ValueRef::Real(_) => unreachable!("the store has no fractions"),
        ValueRef::Text(it) => {
            log.bytes.push(2);
            put_bytes(&mut log.bytes, it);
        }
        ValueRef::Blob(it) => {
            log.bytes.push(3);
            put_bytes(&mut log.bytes, it);
        }
    });
    Ok(())
}

pub(super) fn note_changed(rows: u64) {
    with(|log| put_varint(&mut log.bytes, rows));
}

fn with(note: impl FnOnce(&mut Log)) {
    OPEN.with_borrow_mut(|log| log.as_mut().map(note));
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(bytes: &mut Vec<u8>, of: &[u8]) {
    put_varint(bytes, of.len() as u64);
    bytes.extend_from_slice(of);
}

/// How many rows the statement changed that was run last.
pub(super) fn changed(db: &Connection, text: &str) -> u64 {
    // SQLite leaves the count of the statement before.
    let is_ddl = text.starts_with("CREATE") || text.starts_with("DROP");
    if is_ddl { 0 } else { db.changes() }
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

/// What is left to read.
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
