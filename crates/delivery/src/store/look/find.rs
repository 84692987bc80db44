//! Finds the message with a name, only from the file. Runs hold the names that left memory; newer messages are read
//! one by one.

use rusqlite::{Connection, OptionalExtension, params};

use crate::message::incoming::Digest;
use crate::store::names::runs;
use crate::store::sql::{Result, cached};

/// The number of the newest message with this name. The cost is O(runs) plus the messages accepted after the last run
/// was written, which are at most some hundred thousand rows.
pub(super) fn find(db: &Connection, key: Option<&str>, id: &str) -> Result<Option<i64>> {
    let name = Digest::of(key, id).number();
    let all: Vec<(i64, i64)> = cached(db, "SELECT n, last_seq FROM runs")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let last_seq = all.iter().map(|(_, last_seq)| *last_seq).max().unwrap_or(0);
    let mut seqs: Vec<i64> = cached(db, "SELECT seq FROM messages WHERE seq > ? AND name = ?")?
        .query_map([last_seq, name], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for (run, _) in all {
        runs::find(db, &runs::find_text(run), name, &mut seqs)?;
    }
    seqs.sort_unstable_by(|one, other| other.cmp(one));
    for seq in seqs {
        let text = "SELECT seq FROM messages WHERE seq = ? AND id = ? AND key IS ?";
        if let Some(seq) = cached(db, text)?.query_row(params![seq, id, key], |row| row.get(0)).optional()? {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}
