//! The process that owns a chain, and how it became its owner.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::following::{catch_up, note_at, run};
use super::lease::QUIET_MS;
use super::{Appended, Chain, Kind, Lease, Link, Replicate, Row, unusable};
use crate::store::log::Replay;
use crate::store::sql::{Broken, Result, execute};

/// The longest wait between two tries of an insert.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How often a standby looks for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The process ends, and did not wait for an answer.
const STOPPED: Broken = Broken::Unusable(
    "it was closed while PostgreSQL, or the disk, did not answer",
    "start again: what was not answered may be there or not",
);

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
    pub(crate) fn open(db: &Connection, to: &Replicate, lease: &Arc<Lease>) -> Result<Self> {
        let mut chain = to.open().map_err(unusable)?;
        let mut newest = catch_up(db, &mut *chain)?;
        let mut seen_ms = to.now_ms();
        loop {
            if lease.epoch() >= 0 && newest.epoch != lease.epoch() {
                return Err(Broken::Fenced); // memory has what the owner since then has changed
            }
            let is_over = matches!(newest.kind, Kind::Made | Kind::Ended) || newest.epoch == lease.epoch();
            if is_over || to.now_ms() - seen_ms >= QUIET_MS {
                let epoch = newest.epoch + 1;
                let mut it = Self { chain, at: newest.link, epoch, lease: lease.clone() };
                match it.append(Kind::Taken, Vec::new()) {
                    Ok(()) => {
                        lease.set_epoch(epoch);
                        return Ok(it);
                    }
                    Err(Broken::Fenced) => chain = it.chain, // another was first
                    Err(error) => return Err(error),
                }
            }
            if lease.is_stopping() {
                return Err(STOPPED);
            }
            chain.wait(LOOK_EVERY);
            let before = newest.link;
            match chain.newest() {
                Ok(Some(it)) if it.link == before => {}
                Ok(Some(_)) => newest = catch_up(db, &mut *chain)?,
                Ok(None) => return Err(unusable("PostgreSQL has lost all rows of the chain".to_owned())),
                Err(_) => {
                    seen_ms = i64::MAX; // until there is an answer
                    continue;
                }
            }
            if newest.link != before || seen_ms == i64::MAX {
                seen_ms = to.now_ms();
            }
        }
    }

    /// Returns when the row is stored, however often it has to be tried.
    ///
    /// # Errors
    /// The row was refused: this process does not own the chain any more. It was asked to stop.
    fn append(&mut self, kind: Kind, body: Vec<u8>) -> Result<()> {
        let mut row = Row::after(self.at, self.epoch, kind, body);
        let mut wait = Duration::from_millis(10);
        loop {
            let began_ms = self.lease.now_ms();
            match self.chain.append(Some(self.at), &row) {
                Appended::Stored => {
                    self.at = row.link;
                    self.lease.renew(began_ms);
                    return Ok(());
                }
                // It may be lost, until a row after it is stored.
                Appended::Seen => {
                    self.at = row.link;
                    row = Row::after(self.at, self.epoch, Kind::Beat, Vec::new());
                }
                Appended::Refused => {
                    self.lease.end();
                    return Err(Broken::Fenced);
                }
                Appended::Unknown(_) if self.lease.is_stopping() => return Err(STOPPED),
                Appended::Unknown(_) => {
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
    pub(crate) fn commit(&mut self, db: &Connection, body: &[u8]) -> Result<()> {
        let kind = if body.is_empty() { Kind::Beat } else { Kind::Group };
        let at = Row::after(self.at, self.epoch, kind, body.to_vec()).link;
        note_at(db, at)?;
        self.append(kind, body.to_vec())?;
        let mut committed = execute(db, "COMMIT", ()).map(drop);
        // From here on there is no way back: what is in the chain was written.
        while committed.is_err() {
            if self.lease.is_stopping() {
                return Err(STOPPED);
            }
            self.chain.wait(LOOK_EVERY);
            committed = again(db, body, at);
        }
        Ok(())
    }

    /// Tells a standby that it may begin. The file gets this row at its next opening.
    pub(crate) fn end(&mut self) {
        self.lease.end();
        let row = Row::after(self.at, self.epoch, Kind::Ended, Vec::new());
        self.chain.append(Some(self.at), &row); // without it, a standby waits for the end of the lease
    }
}

/// Runs statements that are in the chain, in place of the transaction that was not committed.
fn again(db: &Connection, body: &[u8], at: Link) -> Result<()> {
    if !db.is_autocommit() {
        execute(db, "ROLLBACK", ())?;
    }
    run(db, &mut Replay::of(db)?, [body].into_iter(), at)
}
