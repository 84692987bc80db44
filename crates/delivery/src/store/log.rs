//! The writes of a transaction, as statements with their values (rule D21). `replay.rs` runs them again.
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
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rustc_hash::FxHashMap;

std::thread_local! {
    /// The log of the transaction that is open on this thread.
    static OPEN: RefCell<Option<Log>> = const { RefCell::new(None) };
    /// Whether it is open: each statement asks.
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// The statements since the last [`Log::take`], and the texts that have a number.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(super) numbers: FxHashMap<String, u64>,
    pub(super) new: Vec<String>,
    pub(super) bytes: Vec<u8>,
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
