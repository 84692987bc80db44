//! A chain in memory, with the faults of one that is far away.

use std::sync::Arc;

use super::chain::Head;
use super::{Appended, Chain, Link, Row};
use crate::base::sync::Mutex;

/// What happens to an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is stored, and nobody hears of it.
    Unheard,
    /// It is not stored.
    Lost,
    /// It is seen, and not heard of, and lost later.
    Shown,
}

#[derive(Debug, Default)]
struct Rows {
    rows: Vec<Row>,
    /// How many rows are kept whatever happens.
    safe: usize,
    faults: Vec<Fault>,
}

/// Clones share the rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct InMemory(Arc<Mutex<Rows>>);

impl InMemory {
    /// The next inserts end so, the last one first.
    pub(crate) fn fail(&self, faults: Vec<Fault>) {
        self.0.lock().faults = faults;
    }

    /// A fail-over: rows that were only shown are lost.
    pub(crate) fn fail_over(&self) {
        let mut it = self.0.lock();
        let safe = it.safe;
        it.rows.truncate(safe);
    }

    /// Rows that were confirmed are lost too.
    pub(crate) fn lose(&self, count: usize) {
        let mut it = self.0.lock();
        let left = it.rows.len() - count;
        it.rows.truncate(left);
        it.safe = it.safe.min(left);
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.0.lock().rows.clone()
    }
}

impl Chain for InMemory {
    fn append(&mut self, before: Option<Link>, row: &Row) -> Appended {
        let mut it = self.0.lock();
        let fault = it.faults.pop();
        if fault == Some(Fault::Lost) {
            return Appended::Unknown("the connection was lost".to_owned());
        }
        let place = row.link.n as usize;
        if let Some(found) = it.rows.get(place) {
            return if found == row { Appended::Seen } else { Appended::Refused };
        }
        let last = it.rows.last().map(|it| it.link);
        if last != before || place != it.rows.len() {
            return Appended::Refused;
        }
        it.rows.push(row.clone());
        if fault != Some(Fault::Shown) {
            it.safe = it.rows.len(); // what is confirmed keeps what came before
        }
        match fault {
            None => Appended::Stored,
            Some(_) => Appended::Unknown("the connection was lost".to_owned()),
        }
    }

    fn newest(&mut self) -> Result<Option<Head>, String> {
        Ok(self.0.lock().rows.last().map(|it| Head { link: it.link, epoch: it.epoch, kind: it.kind }))
    }

    fn read(&mut self, from: i64) -> Result<Vec<Row>, String> {
        Ok(self.0.lock().rows.iter().skip(from as usize).take(10).cloned().collect())
    }
}
