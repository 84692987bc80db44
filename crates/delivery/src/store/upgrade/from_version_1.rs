//! Copies the rows of a version 1 store into a new file of this version. Rows are streamed, so memory is bounded by
//! SQLite's page caches (18 MiB) and one payload.
//!
//! | table | what changes |
//! |---|---|
//! | `messages`, `cancels` | the number of the name comes from the digest of this version |
//! | `bodies` | only bodies of waiting messages are copied |
//! | `waiting` | messages that the last run may have sent before a crash are marked (`handed_until_ms`); a message takes less memory |
//! | `ledger`, `inputs`, `dead_letters` | nothing |
//! | `meta` | only values known to this version are copied |
//! | `ids` | left out: when the store is opened, it makes its runs from `messages` |

use std::borrow::Cow;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

use crate::base::kill_point::kill_point;
use crate::message::incoming::Digest;
use crate::store::file::schema::{APPLICATION_ID, TABLES, VERSION};

const DAY_MS: i64 = 86_400_000;

/// Why the copy is not complete.
pub(super) enum Ended {
    Failed(rusqlite::Error),
    /// The caller stopped the work.
    Stopped,
}

impl From<rusqlite::Error> for Ended {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Copies everything from `old` to `new`, which is empty. Calls `copied` after each `block` of rows, and after all of
/// them, with the number of copied rows. `copied` returns whether to go on.
pub(super) fn copy(
    old: &Connection,
    new: &Connection,
    now_ms: i64,
    block: u64,
    copied: &mut dyn FnMut(u64) -> bool,
) -> Result<(), Ended> {
    // The new file counts only when it is complete and synced, so the copying itself neither syncs nor undoes
    // anything.
    new.execute_batch(
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;
         BEGIN",
    )?;
    new.execute_batch(TABLES)?;
    let mut rows = Rows { old, new, done: 0, block, copied };
    rows.copy_named(
        "SELECT seq, due_ms, key, id, content, outcome FROM messages ORDER BY seq",
        "messages (seq, due_ms, key, id, content, outcome, name)",
        2,
    )?;
    // In ascending order of `seq`, so the new table is written from start to end.
    rows.copy(
        "SELECT b.seq, b.payload FROM bodies b CROSS JOIN messages m ON m.seq = b.seq
         WHERE EXISTS (SELECT 1 FROM waiting w WHERE w.due_ms = m.due_ms AND w.seq = b.seq) ORDER BY b.seq",
        [],
        "bodies (seq, payload)",
    )?;
    // Version 1 counted 700 bytes for a message beside its text and payload. This version counts 200
    // (`Message::size_in_memory`).
    rows.copy(
        "SELECT due_ms, seq, lane, max(size - 500, 200), CASE WHEN due_ms <= ? THEN 1 ELSE redelivered END FROM waiting
         ORDER BY due_ms, seq",
        [handed_until_ms(old)?],
        "waiting (due_ms, seq, lane, size, redelivered)",
    )?;
    for table in [
        "ledger (n, seq, outcome, at_ms, lateness_us, attempts, redelivered)",
        "inputs (source, line, size, digest)",
        "dead_letters (n, at_ms, source, line, reason, allowed, record)",
    ] {
        let (name, columns) = table.split_once(' ').unwrap_or((table, ""));
        let columns = columns.trim_matches(['(', ')']);
        rows.copy(&format!("SELECT {columns} FROM {name} ORDER BY 1"), [], table)?;
    }
    rows.copy_named(
        "SELECT at_ms, until_ms, key, id FROM cancels ORDER BY rowid",
        "cancels (at_ms, until_ms, key, id, name)",
        2,
    )?;
    rows.end()?;
    copy_meta(old, new)?;
    note_ends(new)?;
    note_days(new, now_ms)?;
    kill_point("step up: copied");
    new.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT"))?;
    Ok(())
}

/// Copies tables, and counts their rows.
struct Rows<'a> {
    old: &'a Connection,
    new: &'a Connection,
    done: u64,
    block: u64,
    copied: &'a mut dyn FnMut(u64) -> bool,
}

impl Rows<'_> {
    /// Copies the rows of `select` into `table`, given as a name and columns.
    fn copy(&mut self, select: &str, values: impl Params, table: &str) -> Result<(), Ended> {
        self.copy_by(select, values, table, None)
    }

    /// Like `copy`, with the number of the name as an additional last column. `select` has the key at column `key`,
    /// and the id after it.
    fn copy_named(&mut self, select: &str, table: &str, key: usize) -> Result<(), Ended> {
        self.copy_by(select, [], table, Some(key))
    }

    fn copy_by(&mut self, select: &str, values: impl Params, table: &str, key: Option<usize>) -> Result<(), Ended> {
        let mut select = self.old.prepare(select)?;
        let columns = select.column_count();
        let marks = vec!["?"; columns + usize::from(key.is_some())].join(", ");
        let mut insert = self.new.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
        let mut rows = select.query(values)?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                insert.raw_bind_parameter(column + 1, value(row, column)?)?;
            }
            if let Some(key) = key {
                insert.raw_bind_parameter(columns + 1, name_of(row, key, key + 1)?)?;
            }
            insert.raw_execute()?;
            kill_point("step up: row");
            self.done += 1;
            if self.done.is_multiple_of(self.block) {
                self.end()?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Ended> {
        if (self.copied)(self.done) { Ok(()) } else { Err(Ended::Stopped) }
    }
}

/// The bytes of the old store's tables. The new file is smaller, because unneeded payloads are left out.
pub(super) fn size(old: &Connection) -> Result<u64> {
    let pragma = |name: &str| old.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(pragma("page_size")?)).unwrap_or(0))
}

/// The number of rows to copy. Each waiting message has a payload.
pub(super) fn count(old: &Connection) -> Result<u64> {
    let tables = ["messages", "waiting", "waiting", "ledger", "inputs", "dead_letters", "cancels"];
    let counts = tables.map(|table| format!("(SELECT count(*) FROM {table})")).join(" + ");
    old.query_row(&format!("SELECT {counts}"), [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// A value of the old store, unchanged, even if it is text that is not UTF-8.
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

/// A run that crashed may have sent messages due until this time.
fn handed_until_ms(old: &Connection) -> Result<Option<i64>> {
    let until_ms = old.query_row("SELECT value FROM meta WHERE name = 'handed_until_ms'", [], |row| row.get(0));
    Ok(until_ms.optional()?.flatten())
}

fn copy_meta(old: &Connection, new: &Connection) -> Result<()> {
    let mut select = old.prepare(
        "SELECT name, value FROM meta WHERE name IN ('store_id', 'last_seq', 'letters_written', 'position', 'restored')",
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

/// Writes the values with which the store goes on. No message is near, all present payloads are needed, and no marked
/// message is due after `redelivered_until_ms`.
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

/// For each day with an outcome, notes the last row of the ledger before the day. If the wall clock went back, a row
/// counts for the latest day so far, so nothing is forgotten too early. If the clock was ahead, a time after `now_ms`
/// counts as `now_ms`.
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
