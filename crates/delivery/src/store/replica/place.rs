//! Which row of the chain a file has, and why it does not get to another.

use rusqlite::Connection;

use super::{Link, unusable};
use crate::store::sql::{Broken, Result};
use crate::store::tables::meta;

/// The name in `meta` of the last row that the file has: its number, a space, and its digest.
const AT: &str = "chain";

/// Why a file does not get there.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The chain did not answer: the reason. It may later.
    Away(String),
    For(Broken),
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Self {
        Self::For(broken)
    }
}

impl From<Failed> for Broken {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Away(reason) => unusable(reason),
            Failed::For(broken) => broken,
        }
    }
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
