//! Copies the rows of a store of version 1 into a new file of this version. Rows are streamed, so memory is bounded by SQLite's
//! page caches (18 MiB) and one payload.
//!
//! | table | what changes |
//! |---|---|
//! | `messages`, `cancels` | the number of the name: of the digest of this version |
//! | `bodies` | only those of messages that wait |
//! | `waiting` | what the last run may have sent before a crash gets its mark (`handed_until_ms`); a message takes less memory |
//! | `ledger`, `inputs`, `dead_letters` | nothing |
//! | `meta` | only what this version knows too |
//! | `ids` | are left out: the store makes its runs of `messages` when it is opened |

#![forbid(unsafe_code)]

use std::borrow::Cow;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::super::schema::{APPLICATION_ID, TABLES, VERSION};
use crate::delivery::message::Digest;

const DAY_MS: i64 = 86_400_000;

/// Copies everything from `old` to `new`, which is empty. `copied` is called after each `block` of messages, and after all of
/// them, with how many are copied, and says whether to go on. Returns whether all is copied.
pub(super) fn copy(
    old: &Connection,
    new: &Connection,
    now_ms: i64,
    block: u64,
    copied: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    // The new file counts only when it is complete and synced, so nothing in it is synced or undone before.
    new.execute_batch(
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;
         BEGIN",
    )?;
    new.execute_batch(TABLES)?;
    if !copy_messages(old, new, block, copied)? {
        return Ok(false);
    }
    copy_bodies(old, new)?;
    copy_waiting(old, new)?;
    copy_rows(old, new, "ledger (n, seq, outcome, at_ms, lateness_us, attempts, redelivered)")?;
    copy_cancels(old, new)?;
    copy_rows(old, new, "inputs (source, line, size, digest)")?;
    copy_rows(old, new, "dead_letters (n, at_ms, source, line, reason, allowed, record)")?;
    copy_meta(old, new)?;
    note_ends(new)?;
    note_days(new, now_ms)?;
    new.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT"))?;
    Ok(true)
}

/// Bytes of the tables of the old store. The new file is smaller: the payloads that are not needed any more are left out.
pub(super) fn size(old: &Connection) -> Result<u64> {
    let pragma = |name: &str| old.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(pragma("page_size")?)).unwrap_or(0))
}

/// How many messages it knows.
pub(super) fn count(old: &Connection) -> Result<u64> {
    old.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// A value of the old store as it is, also a text that is not UTF-8.
fn value<'a>(row: &'a Row<'_>, column: usize) -> Result<ToSqlOutput<'a>> {
    row.get_ref(column).map(ToSqlOutput::Borrowed)
}

fn name_of(row: &Row<'_>, key: usize, id: usize) -> Result<i64> {
    let (key, id) = (text(row, key)?, text(row, id)?);
    Ok(Digest::of(key.as_deref(), id.as_deref().unwrap_or("")).number())
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<Cow<'a, str>>> {
    match row.get_ref(column)? {
        ValueRef::Text(text) => Ok(Some(String::from_utf8_lossy(text))),
        _ => Ok(None),
    }
}

fn copy_messages(old: &Connection, new: &Connection, block: u64, copied: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
    let mut select = old.prepare("SELECT seq, due_ms, key, id, content, outcome FROM messages ORDER BY seq")?;
    let mut insert = new
        .prepare("INSERT INTO messages (seq, due_ms, key, id, content, outcome, name) VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let mut done = 0;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..6 {
            insert.raw_bind_parameter(column + 1, value(row, column)?)?;
        }
        insert.raw_bind_parameter(7, name_of(row, 2, 3)?)?;
        insert.raw_execute()?;
        done += 1;
        if done % block == 0 && !copied(done) {
            return Ok(false);
        }
    }
    Ok(copied(done))
}

/// In ascending order of `seq`, so that the new table is written from its start to its end.
fn copy_bodies(old: &Connection, new: &Connection) -> Result<()> {
    let mut select = old.prepare(
        "SELECT b.seq, b.payload FROM bodies b CROSS JOIN messages m ON m.seq = b.seq
         WHERE EXISTS (SELECT 1 FROM waiting w WHERE w.due_ms = m.due_ms AND w.seq = b.seq) ORDER BY b.seq",
    )?;
    let mut insert = new.prepare("INSERT INTO bodies (seq, payload) VALUES (?, ?)")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        insert.execute(params![value(row, 0)?, value(row, 1)?])?;
    }
    Ok(())
}

/// Version 1 counted 700 bytes for a message beside its text and payload, this one counts 200 (`Message::size_in_memory`).
fn copy_waiting(old: &Connection, new: &Connection) -> Result<()> {
    let handed_until_ms: Option<i64> = old
        .query_row("SELECT value FROM meta WHERE name = 'handed_until_ms'", [], |row| row.get(0))
        .optional()?
        .flatten();
    let mut select = old.prepare(
        "SELECT due_ms, seq, lane, max(size - 500, 200), CASE WHEN due_ms <= ? THEN 1 ELSE redelivered END FROM waiting
         ORDER BY due_ms, seq",
    )?;
    let mut insert =
        new.prepare("INSERT INTO waiting (due_ms, seq, lane, size, redelivered) VALUES (?, ?, ?, ?, ?)")?;
    let mut rows = select.query([handed_until_ms])?;
    while let Some(row) = rows.next()? {
        insert.execute(params![value(row, 0)?, value(row, 1)?, value(row, 2)?, value(row, 3)?, value(row, 4)?])?;
    }
    Ok(())
}

/// `table`: its name and its columns.
fn copy_rows(old: &Connection, new: &Connection, table: &str) -> Result<()> {
    let (name, columns) = table.split_once(' ').unwrap_or((table, ""));
    let columns = columns.trim_matches(['(', ')']);
    let marks = vec!["?"; columns.split(',').count()].join(", ");
    let mut select = old.prepare(&format!("SELECT {columns} FROM {name} ORDER BY 1"))?;
    let mut insert = new.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..insert.parameter_count() {
            insert.raw_bind_parameter(column + 1, value(row, column)?)?;
        }
        insert.raw_execute()?;
    }
    Ok(())
}

fn copy_cancels(old: &Connection, new: &Connection) -> Result<()> {
    let mut select = old.prepare("SELECT key, id, at_ms, until_ms FROM cancels ORDER BY rowid")?;
    let mut insert = new.prepare("INSERT INTO cancels (key, id, at_ms, until_ms, name) VALUES (?, ?, ?, ?, ?)")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let name = name_of(row, 0, 1)?;
        insert.execute(params![value(row, 0)?, value(row, 1)?, value(row, 2)?, value(row, 3)?, name])?;
    }
    Ok(())
}

fn copy_meta(old: &Connection, new: &Connection) -> Result<()> {
    let mut select = old.prepare(
        "SELECT name, value FROM meta WHERE name IN ('store_id', 'last_seq', 'letters_written', 'position')",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        put(new, row.get_ref(0)?.as_str()?, value(row, 1)?)?;
    }
    Ok(())
}

fn put(new: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<()> {
    new.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?, ?)")?.execute(params![name, value])?;
    Ok(())
}

/// The values by which the store knows where to go on: no message is near, all payloads that are there are needed, and nothing
/// that is marked is due after `redelivered_until_ms`.
fn note_ends(new: &Connection) -> Result<()> {
    let ask = |text: &str| new.query_row(text, [], |row| row.get::<_, Option<i64>>(0));
    let last_seq = ask("SELECT max(seq) FROM messages")?.unwrap_or(0);
    let last_seq = last_seq.max(ask("SELECT max(value) FROM meta WHERE name = 'last_seq'")?.unwrap_or(0));
    let last_n = ask("SELECT max(n) FROM ledger")?.unwrap_or(0);
    put(new, "last_seq", last_seq)?;
    put(new, "near_floor_seq", last_seq.saturating_add(1))?;
    put(new, "near_floor_n", last_n)?;
    put(new, "collected_n", last_n)?;
    if let Some(due_ms) = ask("SELECT max(due_ms) FROM waiting WHERE redelivered")? {
        put(new, "redelivered_until_ms", due_ms)?;
    }
    Ok(())
}

/// For each day of an outcome the last row of the ledger before it. A row counts for the latest day up to it: the wall clock may
/// have gone back, and nothing is forgotten too early. A clock that was ahead of `now_ms` does not count beyond it.
fn note_days(new: &Connection, now_ms: i64) -> Result<()> {
    let mut select = new.prepare("SELECT n, at_ms FROM ledger ORDER BY n")?;
    let mut insert = new.prepare("INSERT INTO days VALUES (?, ?)")?;
    let mut latest = i64::MIN;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (n, at_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
        let day = at_ms.min(now_ms).div_euclid(DAY_MS);
        if day > latest {
            latest = day;
            insert.execute([day * DAY_MS, n - 1])?;
        }
    }
    Ok(())
}
