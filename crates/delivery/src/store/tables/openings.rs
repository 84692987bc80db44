//! Tells whether a store went back to an older copy of itself, such as a copied file or a snapshot of its disk (S4).
//!
//! Each opening of the store gets a random name, and notes how many groups were committed before it. A program that
//! keeps messages asks for the openings, and for the number of commits. Later it asks again. The store went back in two
//! cases: the opening that the program knows is unknown now, or fewer commits belong to it than it had. The number alone
//! does not tell: a store that went back commits new groups, and may be past the number before the program asks.

use rusqlite::Connection;

use super::meta;
use crate::store::Result;
use crate::store::sql::cached;

const OPENINGS: &str = "openings";
const COMMITS: &str = "commits";

/// How many openings are kept. A program that saw none of them takes the store for one that went back.
const KEPT: usize = 16;

/// The name of an opening, and the number of groups that were committed before it.
pub(crate) type Opening = (String, i64);

/// Notes a new opening. Returns the last openings with this one, and the number of commits.
pub(in crate::store) fn note(db: &Connection) -> Result<(Vec<Opening>, i64)> {
    let commits = meta::get_int(db, COMMITS)?;
    let mut openings = parse(&meta::get::<String>(db, OPENINGS)?.unwrap_or_default());
    let name = cached(db, "SELECT lower(hex(randomblob(6)))")?.query_row([], |row| row.get(0))?;
    openings.push((name, commits));
    openings.drain(..openings.len().saturating_sub(KEPT));
    let lines: Vec<String> = openings.iter().map(|(name, before)| format!("{name} {before}")).collect();
    meta::put(db, OPENINGS, lines.join("\n"))?;
    Ok((openings, commits))
}

/// Notes the number of commits, this one included.
pub(in crate::store) fn count(db: &Connection, commits: i64) -> Result<()> {
    meta::put(db, COMMITS, commits)
}

fn parse(text: &str) -> Vec<Opening> {
    let opening = |line: &str| {
        let (name, before) = line.split_once(' ')?;
        Some((name.to_owned(), before.parse().ok()?))
    };
    text.lines().filter_map(opening).collect()
}
