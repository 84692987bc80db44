//! The process that owns a chain, and how it became its owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::base;
use super::chain::Head;
use super::following::{catch_up, forget, is_moving_in, last_owner, name_of_this_process, note_owner, run};
use super::lease::QUIET_MS;
use super::place::{Failed, note_at};
use super::{Appended, Chain, Kind, Lease, Link, Replicate, Row, unusable};
use crate::store::file::options::Limits;
use crate::store::maintenance::Stop;
use crate::store::replay::Replay;
use crate::store::sql::{Broken, Result, execute};
use crate::store::tables::meta;

/// The longest wait between two tries of an insert.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The name in `meta` of the epoch with which this file ends its chain.
const LEAVING: &str = "chain_leaving";
const LEFT: &str = "name another store, for a new chain; a file of this one becomes a store of its own by `tickwheel store backup`, and \
                    `tickwheel store restore` of that";
/// How often a standby looks for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A chain that this process may append to, until it is refused.
pub(crate) struct Replica {
    chain: Box<dyn Chain>,
    at: Link,
    epoch: i64,
    lease: Arc<Lease>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("at", &self.at).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Replica {
    /// Follows the owner, if there is one, until it is gone. Then takes the chain over: the owner before is refused.
    ///
    /// # Errors
    /// As for [`catch_up`]; the chain could not be reached at first; it was asked to stop.
    pub(crate) fn open(db: &mut Connection, to: &Replicate, lease: &Arc<Lease>, limits: Limits) -> Result<Self> {
        if let Some((epoch, host, pid)) = last_owner(db)? {
            lease.note_owner(epoch, Some((host, pid)));
        }
        let mut chain = to.open().map_err(unusable)?;
        let mut newest = catch_up(db, &mut *chain, lease)?;
        if is_moving_in(&newest, &mut *chain)? {
            let path = PathBuf::from(db.path().unwrap_or_default());
            base::make(&path, &mut *chain, None, limits.base_piece, &Stop::default())?;
        }
        // When an answer showed a new row, or was the first one after a question without an answer.
        let mut seen_ms = Some(lease.now_ms());
        loop {
            if lease.epoch() >= 0 && newest.epoch != lease.epoch() {
                return Err(Broken::Fenced); // memory has what the owner since then has changed
            }
            if newest.kind == Kind::Left {
                return Err(Broken::Chain("the store has left replication, and its chain has ended".to_owned(), LEFT));
            }
            let is_over = matches!(newest.kind, Kind::Made | Kind::Ended) || newest.epoch == lease.epoch();
            if is_over || seen_ms.is_some_and(|seen_ms| lease.now_ms() - seen_ms >= QUIET_MS) {
                let taken = Row::after(newest.link, newest.epoch + 1, Kind::Taken, name_of_this_process(db)?);
                let mut it = Self { chain, at: newest.link, epoch: taken.epoch, lease: lease.clone() };
                match it.append(&taken, Lease::look) {
                    Ok(()) => {
                        note_owner(db, &taken, lease)?;
                        lease.set_epoch(taken.epoch);
                        return Ok(it);
                    }
                    Err(Broken::Fenced) => chain = it.chain, // another was first
                    Err(error) => return Err(error),
                }
            }
            lease.look()?;
            chain.wait(LOOK_EVERY);
            match look(db, &mut *chain, lease, newest) {
                Ok(now) if now.link == newest.link => seen_ms = seen_ms.or_else(|| Some(lease.now_ms())),
                Ok(now) => (newest, seen_ms) = (now, Some(lease.now_ms())),
                Err(Failed::Away(reason)) => {
                    lease.note_trouble(reason);
                    seen_ms = None;
                }
                Err(Failed::For(error)) => return Err(error),
            }
        }
    }

    /// Returns when the row, which comes after the last one, is stored, however often it has to be tried.
    ///
    /// # Errors
    /// The row was refused: this process does not own the chain any more; those of `go_on`, which is asked before each further try.
    fn append(&mut self, first: &Row, go_on: fn(&Lease) -> Result<()>) -> Result<()> {
        let mut beat;
        let mut row = first;
        let mut wait = Duration::from_millis(10);
        self.lease.note_lag(1, first.body.len() as u64);
        loop {
            let began_ms = self.lease.now_ms();
            match self.chain.append(Some(self.at), row) {
                Appended::Stored => {
                    self.at = row.link;
                    self.lease.renew(began_ms);
                    self.lease.note_lag(0, 0);
                    return Ok(());
                }
                // It may be lost, until a row after it is stored.
                Appended::Seen => {
                    self.at = row.link;
                    beat = Row::after(self.at, self.epoch, Kind::Beat, Vec::new());
                    row = &beat;
                }
                Appended::Refused => {
                    self.lease.end();
                    return Err(Broken::Fenced);
                }
                Appended::Unknown(reason) => {
                    self.lease.note_trouble(reason);
                    go_on(&self.lease)?;
                    self.chain.wait(wait);
                    wait = LONGEST_WAIT.min(2 * wait);
                }
            }
        }
    }

    /// Commits the open transaction, which has these statements, once they are in the chain.
    ///
    /// # Errors
    /// As for `append`; nothing was committed then.
    pub(crate) fn commit(&mut self, db: &Connection, body: Vec<u8>) -> Result<()> {
        let kind = if body.is_empty() { Kind::Beat } else { Kind::Group };
        let row = Row::after(self.at, self.epoch, kind, body);
        note_at(db, row.link)?;
        self.append(&row, Lease::go_on)?;
        let mut committed = execute(db, "COMMIT", ()).map(drop);
        // From here on there is no way back: what is in the chain was written.
        while let Err(error) = committed {
            self.lease.note_lag(1, row.body.len() as u64);
            self.lease.note_trouble(error.of(Path::new(db.path().unwrap_or_default())).to_string());
            self.lease.go_on()?;
            self.chain.wait(LOOK_EVERY);
            committed = self.again(db, &row);
        }
        self.lease.note_lag(0, 0);
        Ok(())
    }

    /// Runs a row that is in the chain, in place of the transaction that was not committed.
    fn again(&self, db: &Connection, row: &Row) -> Result<()> {
        if !db.is_autocommit() {
            execute(db, "ROLLBACK", ())?;
        }
        run(db, &mut Replay::of(db)?, std::slice::from_ref(row), &self.lease)
    }

    /// Tells a standby that it may begin. The file gets this row at its next opening.
    pub(crate) fn end(&mut self) {
        self.lease.end();
        let row = Row::after(self.at, self.epoch, Kind::Ended, Vec::new());
        self.chain.append(Some(self.at), &row); // without it, a standby waits for the end of the lease
    }

    /// Ends the chain for good, and makes the file one without a chain. After an error, `has_left` tells whether it has ended.
    ///
    /// # Errors
    /// As for `append`.
    pub(super) fn leave(mut self, db: &Connection) -> Result<()> {
        meta::put(db, LEAVING, self.epoch)?;
        self.append(&Row::after(self.at, self.epoch, Kind::Left, Vec::new()), Lease::ask)?;
        forget(db, self.epoch)
    }
}

/// Whether this file has ended its chain, and does not know it yet.
pub(super) fn has_left(db: &Connection, chain: &mut dyn Chain) -> Result<Option<i64>> {
    let Some(epoch) = meta::get::<i64>(db, LEAVING)? else { return Ok(None) };
    let newest = chain.newest().map_err(unusable)?;
    Ok(newest.filter(|it| it.kind == Kind::Left && it.epoch == epoch).map(|_| epoch))
}

/// A look of a standby. Returns the newest row.
fn look(db: &mut Connection, chain: &mut dyn Chain, lease: &Lease, before: Head) -> Result<Head, Failed> {
    match chain.newest().map_err(Failed::Away)? {
        Some(it) if it.link == before.link => {
            lease.note_lag(0, 0);
            Ok(it)
        }
        Some(_) => catch_up(db, chain, lease),
        None => Err(unusable("PostgreSQL has lost all rows of the chain".to_owned()).into()),
    }
}
