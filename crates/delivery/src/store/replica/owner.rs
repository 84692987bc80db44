//! The process that owns a chain, and how a file gets to where the chain is.

use std::time::Duration;

use rusqlite::Connection;

use super::{Appended, Chain, Kind, Link, Row};
use crate::store::log::Replay;
use crate::store::sql::{Broken, Result, execute};
use crate::store::tables::meta;

/// The name in `meta` of the last row that the file has: its number, a space, and its digest.
const AT: &str = "chain";
/// What the first row comes after.
const BEFORE: Link = Link { n: -1, digest: [0; 16] };
/// The longest wait between two tries of an insert.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A chain that this process may append to, until it is refused.
pub(crate) struct Replica {
    chain: Box<dyn Chain>,
    at: Link,
    epoch: i64,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("at", &self.at).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Replica {
    /// Takes the chain over: from now on, the owner before is refused. The file has to be where the chain is.
    pub(crate) fn take_over(mut chain: Box<dyn Chain>, at: Link) -> Result<Self> {
        let newest = chain.newest().map_err(cannot)?;
        let epoch = newest.map_or(0, |it| it.epoch) + 1;
        let mut it = Self { chain, at, epoch };
        it.append(Kind::Taken, Vec::new())?;
        Ok(it)
    }

    /// Returns when the row is stored, however often it has to be tried.
    ///
    /// # Errors
    /// The row was refused: this process does not own the chain any more.
    pub(crate) fn append(&mut self, kind: Kind, body: Vec<u8>) -> Result<()> {
        let mut row = Row::after(self.at, self.epoch, kind, body);
        let mut wait = Duration::from_millis(10);
        loop {
            match self.chain.append(Some(self.at), &row) {
                Appended::Stored => {
                    self.at = row.link;
                    return Ok(());
                }
                Appended::Seen => {
                    self.at = row.link;
                    row = Row::after(self.at, self.epoch, Kind::Beat, Vec::new());
                }
                Appended::Refused => return Err(Broken::FENCED),
                Appended::Unknown(_) => {
                    std::thread::sleep(if cfg!(test) { Duration::ZERO } else { wait });
                    wait = LONGEST_WAIT.min(2 * wait);
                }
            }
        }
    }

    /// Commits the open transaction, which has these statements, once they are in the chain.
    ///
    /// # Errors
    /// As for [`Replica::append`]; nothing was stored then.
    pub(crate) fn commit(&mut self, db: &Connection, body: Vec<u8>) -> Result<()> {
        let before = self.at;
        let at = Row::after(before, self.epoch, Kind::Group, body.clone()).link;
        note_at(db, at)?;
        self.append(Kind::Group, body.clone())?;
        let mut committed = execute(db, "COMMIT", ());
        // From here on there is no way back: what is in the chain was written.
        while committed.is_err() {
            wait_a_little();
            committed = again(db, &body, at);
        }
        Ok(())
    }
}

/// Runs statements that are in the chain, in place of the transaction that was not committed.
fn again(db: &Connection, body: &[u8], at: Link) -> Result<usize> {
    if !db.is_autocommit() {
        execute(db, "ROLLBACK", ())?;
    }
    execute(db, "BEGIN IMMEDIATE", ())?;
    Replay::of(db)?.run(db, body)?;
    note_at(db, at)?;
    execute(db, "COMMIT", ())
}

fn wait_a_little() {
    std::thread::sleep(if cfg!(test) { Duration::ZERO } else { LONGEST_WAIT });
}

fn note_at(db: &Connection, at: Link) -> Result<()> {
    meta::put(db, AT, format!("{} {:032x}", at.n, u128::from_be_bytes(at.digest)))
}

/// The last row that the file has. `None`: it is not replicated.
fn at(db: &Connection) -> Result<Option<Link>> {
    let Some(text) = meta::get::<String>(db, AT)? else { return Ok(None) };
    let parsed = text.split_once(' ').and_then(|(n, digest)| {
        let digest = u128::from_str_radix(digest, 16).ok()?.to_be_bytes();
        Some(Link { n: n.parse().ok()?, digest })
    });
    parsed.map(Some).ok_or_else(|| Broken::Contradiction(format!("{text:?} is no place in a chain")))
}

/// Runs the rows that the file does not have, and returns the last one. An empty chain begins with this file.
///
/// # Errors
/// The chain can't be read; it is of another store, or the file has rows that it has not.
pub(crate) fn catch_up(db: &Connection, chain: &mut dyn Chain) -> Result<Link> {
    let mut at = match at(db)? {
        Some(at) => at,
        None => join(db, chain)?,
    };
    let mut replay = Replay::of(db)?;
    loop {
        let rows = chain.read(at.n).map_err(cannot)?;
        if rows.first().map(|it| it.link) != Some(at) {
            return Err(Broken::Contradiction(format!("the chain has no row {} as this file knows it", at.n)));
        }
        if rows.len() == 1 {
            return Ok(at);
        }
        for row in &rows[1..] {
            if !row.follows(at) {
                return Err(Broken::Contradiction(format!("row {} of the chain is damaged", row.link.n)));
            }
            execute(db, "BEGIN IMMEDIATE", ())?;
            replay.run(db, &row.body)?;
            note_at(db, row.link)?;
            execute(db, "COMMIT", ())?;
            at = row.link;
        }
    }
}

/// Makes this file the beginning of an empty chain, or a new file the first row of one.
fn join(db: &Connection, chain: &mut dyn Chain) -> Result<Link> {
    let is_new = meta::last_openings(db)?.0.is_empty();
    let first = chain.read(0).map_err(cannot)?.into_iter().next();
    let at = match first {
        None => {
            let id = meta::get::<String>(db, "store_id")?.unwrap_or_default();
            let row = Row::after(BEFORE, 0, Kind::Made, id.into_bytes());
            match chain.append(None, &row) {
                Appended::Stored | Appended::Seen => row.link,
                Appended::Refused => return Err(Broken::FENCED),
                Appended::Unknown(reason) => return Err(cannot(reason)),
            }
        }
        Some(row) if is_new && row.kind == Kind::Made && row.follows(BEFORE) => {
            meta::put(db, "store_id", String::from_utf8_lossy(&row.body))?;
            row.link
        }
        Some(_) => return Err(Broken::Contradiction("the chain is of another store".to_owned())),
    };
    note_at(db, at)?;
    Ok(at)
}

fn cannot(reason: String) -> Broken {
    Broken::Contradiction(format!("the chain can't be reached: {reason}"))
}
