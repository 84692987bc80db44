//! How a file gets to where the chain is.

use rusqlite::Connection;

use super::chain::Head;
use super::{Appended, Chain, Kind, Lease, Link, Row, unusable};
use crate::store::log::Replay;
use crate::store::sql::{Broken, Result, execute};
use crate::store::tables::meta;

/// The name in `meta` of the last row that the file has: its number, a space, and its digest.
const AT: &str = "chain";
/// The name in `meta` of the last take-over that the file has: its epoch, a space, and its body.
const OWNER: &str = "chain_owner";
/// What the first row comes after.
const BEFORE: Link = Link { n: -1, digest: [0; 16] };

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

/// The body of a take-over: a random text, so that no two are the same, the process id, and the host.
pub(super) fn name_of_this_process(db: &Connection) -> Result<Vec<u8>> {
    let random: String = db.query_row("SELECT lower(hex(randomblob(8)))", [], |row| row.get(0))?;
    let host = rustix::system::uname();
    Ok(format!("{random} {} {}", std::process::id(), host.nodename().to_string_lossy()).into_bytes())
}

/// The host and the process id in such a body.
fn process_in(name: &str) -> Option<(String, u32)> {
    let (pid, host) = name.split_once(' ')?.1.split_once(' ')?;
    Some((host.to_owned(), pid.parse().ok()?))
}

pub(super) fn note_owner(db: &Connection, taken: &Row, lease: &Lease) -> Result<()> {
    let name = String::from_utf8_lossy(&taken.body);
    meta::put(db, OWNER, format!("{} {name}", taken.epoch))?;
    lease.note_owner(taken.epoch, process_in(&name));
    Ok(())
}

/// The epoch, the host and the process id of the last take-over that the file has.
pub(crate) fn last_owner(db: &Connection) -> Result<Option<(i64, String, u32)>> {
    let noted = meta::get::<String>(db, OWNER)?.unwrap_or_default();
    let parse = |(epoch, name): (&str, &str)| {
        let (host, pid) = process_in(name)?;
        Some((epoch.parse().ok()?, host, pid))
    };
    Ok(noted.split_once(' ').and_then(parse))
}

/// Runs the rows that the file does not have. Returns the last one. An empty chain begins with this file, if it is new.
///
/// # Errors
/// The chain can't be read; it is of another store, or the file has rows that it has not.
pub(crate) fn catch_up(db: &Connection, chain: &mut dyn Chain, lease: &Lease) -> Result<Head, Failed> {
    let mut at = match at(db)? {
        Some(at) => at,
        None => join(db, chain)?,
    };
    let mut replay = Replay::of(db)?;
    let mut left = None;
    loop {
        lease.look()?;
        let rows = chain.read(at.n).map_err(Failed::Away)?;
        let first = rows.first().filter(|it| it.link == at);
        let first = first.ok_or_else(|| unusable(format!("PostgreSQL has lost row {} of the chain", at.n)))?;
        if rows.len() == 1 {
            lease.note_lag(0, 0);
            return Ok(first.head());
        }
        if let Some(pair) = rows.windows(2).find(|pair| !pair[1].follows(pair[0].link)) {
            return Err(unusable(format!("row {} of the chain is damaged", pair[1].link.n)).into());
        }
        run(db, &mut replay, &rows[1..], lease)?;
        at = rows[rows.len() - 1].link;
        left = match left {
            None => Some((0, 0)), // most often there is nothing more
            Some((0, 0)) => Some(chain.after(at.n).map_err(Failed::Away)?),
            Some((count, bytes)) => {
                let still = count.saturating_sub(rows.len() as u64 - 1);
                Some((still, bytes / count.max(1) * still))
            }
        };
        if let Some((count, bytes)) = left {
            lease.note_lag(count, bytes);
        }
    }
}

/// Runs rows in one transaction.
pub(super) fn run(db: &Connection, replay: &mut Replay, rows: &[Row], lease: &Lease) -> Result<()> {
    execute(db, "BEGIN IMMEDIATE", ())?;
    let each = |row: &Row| match row.kind {
        Kind::Group => replay.run(db, &row.body),
        Kind::Taken => note_owner(db, row, lease),
        Kind::Made | Kind::Beat | Kind::Ended => Ok(()),
    };
    let last = rows.last().map_or(BEFORE, |it| it.link);
    let ran = rows.iter().try_for_each(each).and_then(|()| note_at(db, last)).and_then(|()| execute(db, "COMMIT", ()));
    if ran.is_err() && !db.is_autocommit() {
        execute(db, "ROLLBACK", ())?;
    }
    ran.map(drop)
}

/// Makes a new file the first row of its chain, or of an empty one.
fn join(db: &Connection, chain: &mut dyn Chain) -> Result<Link, Failed> {
    if !meta::last_openings(db)?.0.is_empty() {
        let what = "this store has messages already, and only a new one can be replicated";
        return Err(unusable(what.to_owned()).into());
    }
    let id = meta::get::<String>(db, "store_id")?.unwrap_or_default();
    let made = Row::after(BEFORE, 0, Kind::Made, id.into_bytes());
    let row = match chain.read(0).map_err(Failed::Away)?.into_iter().next() {
        Some(row) => row,
        None => match chain.append(None, &made) {
            Appended::Stored | Appended::Seen => made,
            Appended::Refused => return Err(Failed::Away("another process has just made the chain".to_owned())),
            Appended::Unknown(reason) => return Err(Failed::Away(reason)),
        },
    };
    if row.kind != Kind::Made || !row.follows(BEFORE) {
        return Err(unusable("row 0 of the chain is damaged".to_owned()).into());
    }
    execute(db, "BEGIN IMMEDIATE", ())?; // a file with one of both would be of another store
    meta::put(db, "store_id", String::from_utf8_lossy(&row.body))?;
    note_at(db, row.link)?;
    execute(db, "COMMIT", ())?;
    Ok(row.link)
}
