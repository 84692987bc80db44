//! How a file gets to where the chain is.

use rusqlite::Connection;

use super::base::{fetch, is_before};
use super::chain::Head;
use super::place::{Failed, at, note_at};
use super::{Appended, Chain, Kind, Lease, Link, Row, unusable};
use crate::store::replay::Replay;
use crate::store::sql::{Result, execute};
use crate::store::tables::meta;

/// The name in `meta` of the last take-over that the file has: its epoch, a space, and its body.
const OWNER: &str = "chain_owner";
/// The name in `meta` of the epoch with which an earlier chain of the file has ended.
const LAST_EPOCH: &str = "last_epoch";
/// The name in `meta` of the body of row 0, if this file has made it.
const MADE: &str = "chain_made";
/// At the end of that body: the file has messages, and a base comes before anything else.
const MOVED: &str = " moved";
/// Before the first row.
const BEFORE: Link = Link { n: -1, digest: [0; 16] };

/// Whether the file has a chain.
pub(crate) fn is_replicated(db: &Connection) -> Result<bool> {
    Ok(at(db)?.is_some())
}

/// Makes the file one without a chain. Its next chain goes on after this epoch, because receivers refuse a lower one.
pub(super) fn forget(db: &Connection, epoch: i64) -> Result<()> {
    meta::put(db, LAST_EPOCH, epoch)?;
    execute(db, "DELETE FROM meta WHERE name GLOB 'chain*' OR name GLOB 'text [0-9]*'", ()).map(drop)
}

/// The body of a take-over: a random text, so that no two are the same, the process id, and the host.
pub(super) fn name_of_this_process(db: &Connection) -> Result<Vec<u8>> {
    let host = rustix::system::uname();
    Ok(format!("{} {} {}", random_text(db)?, std::process::id(), host.nodename().to_string_lossy()).into_bytes())
}

fn random_text(db: &Connection) -> Result<String> {
    Ok(db.query_row("SELECT lower(hex(randomblob(8)))", [], |row| row.get(0))?)
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

/// Runs the rows that the file does not have, from the newest base on if they were deleted. Returns the last one. An empty chain begins
/// with this file.
///
/// # Errors
/// The chain can't be read; it is of another store, or the file has rows that it has not.
pub(crate) fn catch_up(db: &mut Connection, chain: &mut dyn Chain, lease: &Lease) -> Result<Head, Failed> {
    if at(db)?.is_none() {
        join(db, chain, lease)?;
    }
    let mut at_before = None;
    let mut replay = Replay::of(db)?;
    let mut left = None;
    loop {
        lease.look()?;
        let at = at(db)?.ok_or_else(|| unusable("the base has no place in the chain".to_owned()))?;
        let mut rows = chain.read(at.n).map_err(Failed::Away)?;
        let together = 1 + rows.windows(2).take_while(|pair| pair[1].link.n == pair[0].link.n + 1).count();
        let are_all = rows.len() <= together; // otherwise some were deleted
        rows.truncate(together);
        let Some(first) = rows.first().filter(|it| it.link == at && (are_all || together > 1)) else {
            let base = chain.base().map_err(Failed::Away)?.filter(|it| it.at.n > at.n && at_before != Some(at));
            let owner = meta::get::<String>(db, OWNER)?.unwrap_or_default();
            match base {
                Some(base) if is_before(at, &owner, chain)? => fetch(db, chain, &base, lease)?,
                _ => return Err(unusable(format!(
                    "PostgreSQL has not the row {} of the chain: it has lost it, or the address names another store",
                    at.n
                ))
                .into()),
            }
            (at_before, replay) = (Some(at), Replay::of(db)?);
            continue;
        };
        if rows.len() == 1 {
            lease.note_lag(0, 0);
            return Ok(first.head());
        }
        if let Some(pair) = rows.windows(2).find(|pair| !pair[1].follows(pair[0].link)) {
            return Err(unusable(format!("row {} of the chain is damaged", pair[1].link.n)).into());
        }
        run(db, &mut replay, &rows[1..], lease)?;
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
        Kind::Made | Kind::Beat | Kind::Ended | Kind::Left => Ok(()),
    };
    let last = rows.last().map_or(BEFORE, |it| it.link);
    let ran = rows.iter().try_for_each(each).and_then(|()| note_at(db, last)).and_then(|()| execute(db, "COMMIT", ()));
    if ran.is_err() && !db.is_autocommit() {
        execute(db, "ROLLBACK", ())?;
    }
    ran.map(drop)
}

/// Makes a file without a chain part of one: a new file gets the newest base, or row 0; one with messages begins an empty chain.
fn join(db: &mut Connection, chain: &mut dyn Chain, lease: &Lease) -> Result<(), Failed> {
    let is_new = meta::last_openings(db)?.0.is_empty();
    if is_new && let Some(base) = chain.base().map_err(Failed::Away)? {
        return fetch(db, chain, &base, lease);
    }
    let row = match chain.read(0).map_err(Failed::Away)?.into_iter().next() {
        Some(row) => row,
        None => begin(db, chain, is_new)?,
    };
    let made = std::str::from_utf8(&row.body).ok().filter(|_| row.kind == Kind::Made && row.follows(BEFORE));
    let made = made.ok_or_else(|| unusable("row 0 of the chain is damaged".to_owned()))?;
    let is_own = meta::get::<String>(db, MADE)?.as_deref() == Some(made);
    if !(is_new || is_own && made.ends_with(MOVED)) {
        return Err(unusable(
            "the chain has begun with another file, or with this one while it was empty: name another store, or use a new file".to_owned(),
        )
        .into());
    }
    if is_new && made.ends_with(MOVED) {
        let what = "the store is being moved into replication: start the machine that has its file first";
        return Err(unusable(what.to_owned()).into());
    }
    execute(db, "BEGIN IMMEDIATE", ())?; // a file with one of both would be of another store
    meta::put(db, "store_id", made.split(' ').next())?;
    meta::delete(db, MADE)?;
    note_at(db, row.link)?;
    execute(db, "COMMIT", ())?;
    Ok(())
}

/// Inserts row 0: the name of the store, a random text, and whether a base comes before anything else. The file has noted it before.
fn begin(db: &Connection, chain: &mut dyn Chain, is_new: bool) -> Result<Row, Failed> {
    let is_noted = |made: String| made.ends_with(MOVED) != is_new; // it may have been new at an earlier try
    if !meta::get::<String>(db, MADE)?.is_some_and(is_noted) {
        let id = meta::get::<String>(db, "store_id")?.unwrap_or_default();
        meta::put(db, MADE, format!("{id} {}{}", random_text(db)?, if is_new { "" } else { MOVED }))?;
    }
    let made = meta::get::<String>(db, MADE)?.unwrap_or_default();
    let made = Row::after(BEFORE, meta::get_int(db, LAST_EPOCH)?, Kind::Made, made.into_bytes());
    match chain.append(None, &made) {
        Appended::Stored | Appended::Seen => Ok(made),
        Appended::Refused => Err(Failed::Away("another process has just made the chain".to_owned())),
        Appended::Unknown(reason) => Err(Failed::Away(reason)),
    }
}

/// Whether the file is one with messages that are not in the chain yet. Its base comes before anything else.
pub(super) fn is_moving_in(newest: &Head, chain: &mut dyn Chain) -> Result<bool, Failed> {
    if newest.kind != Kind::Made || chain.base().map_err(Failed::Away)?.is_some() {
        return Ok(false);
    }
    let made = chain.read(0).map_err(Failed::Away)?.into_iter().next();
    Ok(made.is_some_and(|it| it.body.ends_with(MOVED.as_bytes())))
}
