//! How a file gets to where the chain is.

use rusqlite::Connection;

use super::chain::Head;
use super::{Appended, Chain, Kind, Link, Row, unusable};
use crate::store::log::Replay;
use crate::store::sql::{Result, execute};
use crate::store::tables::meta;

/// The name in `meta` of the last row that the file has: its number, a space, and its digest.
const AT: &str = "chain";
/// What the first row comes after.
const BEFORE: Link = Link { n: -1, digest: [0; 16] };

/// Whether the file has a chain.
pub(crate) fn is_replicated(db: &Connection) -> Result<bool> {
    Ok(meta::get::<String>(db, AT)?.is_some())
}

pub(super) fn note_at(db: &Connection, at: Link) -> Result<()> {
    meta::put(db, AT, format!("{} {:032x}", at.n, u128::from_be_bytes(at.digest)))
}

/// The last row that the file has. `None`: it is not replicated.
pub(super) fn at(db: &Connection) -> Result<Option<Link>> {
    let Some(text) = meta::get::<String>(db, AT)? else { return Ok(None) };
    let parsed = text.split_once(' ').and_then(|(n, digest)| {
        let digest = u128::from_str_radix(digest, 16).ok()?.to_be_bytes();
        Some(Link { n: n.parse().ok()?, digest })
    });
    parsed.map(Some).ok_or_else(|| unusable(format!("{text:?} is no place in a chain")))
}

/// Runs the rows that the file does not have. Returns the last one. An empty chain begins with this file, if it is new.
///
/// # Errors
/// The chain can't be read; it is of another store, or the file has rows that it has not.
pub(crate) fn catch_up(db: &Connection, chain: &mut dyn Chain) -> Result<Head> {
    let mut at = match at(db)? {
        Some(at) => at,
        None => join(db, chain)?,
    };
    let mut replay = Replay::of(db)?;
    loop {
        let rows = chain.read(at.n).map_err(unusable)?;
        let first = rows.first().filter(|it| it.link == at);
        let first = first.ok_or_else(|| unusable(format!("PostgreSQL has lost row {} of the chain", at.n)))?;
        if rows.len() == 1 {
            return Ok(first.head());
        }
        let links = || rows.iter().map(|it| it.link);
        if let Some((_, row)) = links().zip(&rows[1..]).find(|(before, row)| !row.follows(*before)) {
            return Err(unusable(format!("row {} of the chain is damaged", row.link.n)));
        }
        at = links().next_back().expect("there are rows");
        run(db, &mut replay, rows[1..].iter().map(|it| &*it.body), at)?;
    }
}

/// Runs the statements of rows in one transaction; `at` is the last row.
pub(super) fn run<'a>(
    db: &Connection,
    replay: &mut Replay,
    mut bodies: impl Iterator<Item = &'a [u8]>,
    at: Link,
) -> Result<()> {
    execute(db, "BEGIN IMMEDIATE", ())?;
    let ran = bodies
        .try_for_each(|body| replay.run(db, body))
        .and_then(|()| note_at(db, at))
        .and_then(|()| execute(db, "COMMIT", ()));
    if ran.is_err() && !db.is_autocommit() {
        execute(db, "ROLLBACK", ())?;
    }
    ran.map(drop)
}

/// Makes a new file the first row of its chain, or of an empty one.
fn join(db: &Connection, chain: &mut dyn Chain) -> Result<Link> {
    if !meta::last_openings(db)?.0.is_empty() {
        return Err(unusable("this store has messages already, and only a new one can be replicated".to_owned()));
    }
    let id = meta::get::<String>(db, "store_id")?.unwrap_or_default();
    let made = Row::after(BEFORE, 0, Kind::Made, id.into_bytes());
    let row = match chain.read(0).map_err(unusable)?.into_iter().next() {
        Some(row) => row,
        None => match chain.append(None, &made) {
            Appended::Stored | Appended::Seen => made,
            Appended::Refused => return Err(unusable("another process has just made the chain".to_owned())),
            Appended::Unknown(reason) => return Err(unusable(reason)),
        },
    };
    if row.kind != Kind::Made || !row.follows(BEFORE) {
        return Err(unusable("row 0 of the chain is damaged".to_owned()));
    }
    execute(db, "BEGIN IMMEDIATE", ())?; // a file with one of both would be of another store
    meta::put(db, "store_id", String::from_utf8_lossy(&row.body))?;
    note_at(db, row.link)?;
    execute(db, "COMMIT", ())?;
    Ok(row.link)
}
