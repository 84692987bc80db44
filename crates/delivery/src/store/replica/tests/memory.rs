//! A chain in memory, with the faults of one that is far away.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::base::sync::Mutex;
use crate::store::file::schema::{connect, connect_to_look};
use crate::store::replica::chain::{Base, Head, Kind};
use crate::store::replica::following::catch_up;
use crate::store::replica::place::at;
use crate::store::replica::{Appended, Chain, Link, Replicate, Row};
use crate::store::sql::rows;

/// The fate of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is stored, and the answer is lost.
    Unheard,
    /// It is not stored.
    Lost,
    /// It is seen, and lost in a fail-over, unless a later insert is confirmed.
    Shown,
    /// Rows that were only shown are lost before it.
    FailOver,
    /// It is not stored, and no other one, until [`InMemory::mend`] or for some tries.
    Cut,
}

#[derive(Debug, Default)]
struct Kept {
    rows: Vec<Row>,
    /// How many rows are kept whatever happens.
    safe: usize,
    faults: Vec<Option<Fault>>,
    cut_for: u32,
    pieces: BTreeMap<(i64, i64, i64), Vec<u8>>,
    /// Pieces after so many are not stored.
    pieces_left: Option<usize>,
    pieces_refused: usize,
    /// Rows before this one are deleted, but row 0 and take-overs.
    trimmed: i64,
}

/// Runs right before an insert.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// Clones share the rows and the clock.
#[derive(Clone, Default)]
pub(crate) struct InMemory {
    kept: Arc<Mutex<Kept>>,
    meanwhile: Arc<Mutex<VecDeque<Meanwhile>>>,
    pub(crate) now_ms: Arc<AtomicI64>,
}

impl InMemory {
    /// The setting by which an engine uses it.
    pub(crate) fn replicate(&self) -> Replicate {
        let (chain, now_ms) = (self.clone(), self.now_ms.clone());
        Replicate::with(Arc::new(move || Ok(Box::new(chain.clone()))), Arc::new(move || now_ms.load(Ordering::Relaxed)))
    }

    /// These happen, each one right before an insert.
    pub(crate) fn before_inserts(&self, meanwhile: Vec<Meanwhile>) {
        *self.meanwhile.lock() = meanwhile.into();
    }

    /// The next inserts end so, the last one first.
    pub(crate) fn fail(&self, faults: Vec<Option<Fault>>) {
        self.kept.lock().faults = faults;
    }

    /// Only so many pieces of a base are stored from now on; `None`: all.
    pub(crate) fn limit_pieces(&self, count: Option<usize>) {
        self.kept.lock().pieces_left = count;
    }

    /// How many pieces were not stored.
    pub(crate) fn pieces_refused(&self) -> usize {
        self.kept.lock().pieces_refused
    }

    /// Changes a byte of a base.
    pub(crate) fn damage_piece(&self) {
        let mut kept = self.kept.lock();
        kept.pieces.iter_mut().find(|((_, _, piece), _)| *piece == 1).expect("a base").1[5_000] ^= 1;
    }

    /// The number of the first row that was not deleted.
    pub(crate) fn trimmed(&self) -> i64 {
        self.kept.lock().trimmed
    }

    /// Ends [`Fault::Cut`].
    pub(crate) fn mend(&self) {
        self.kept.lock().cut_for = 0;
    }

    /// A fail-over: rows that were only shown are lost.
    pub(crate) fn fail_over(&self) {
        let mut it = self.kept.lock();
        let safe = it.safe;
        it.rows.truncate(safe);
    }

    /// Rows that were confirmed are lost too.
    pub(crate) fn lose(&self, count: usize) {
        let mut it = self.kept.lock();
        let left = it.rows.len() - count;
        it.rows.truncate(left);
        it.safe = it.safe.min(left);
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.kept.lock().rows.clone()
    }

    /// The same, if anything was written to the chain.
    pub(crate) fn check_if_used(&self, store: &Path) {
        if !self.kept.lock().rows.is_empty() {
            self.check(store);
        }
    }

    /// The file is what the first rows make.
    pub(crate) fn check_place(&self, store: &Path) {
        let db = connect_to_look(store).expect("it opens");
        if let Some(at) = at(&db).expect("it is read") {
            assert_eq!(self.kept.lock().rows.get(at.n as usize).map(|it| it.link), Some(at));
        }
    }

    /// A second file, beside the store, gets the rows that it does not have. Then both have the same content.
    pub(crate) fn check(&self, store: &Path) {
        let mut db = connect(&store.with_extension("replica"), "OFF", None).expect("it opens");
        catch_up(&mut db, &mut self.clone(), &self.replicate().lease()).expect("it can be followed");
        let there = content_of(&connect_to_look(store).expect("it opens"));
        for (place, (here, there)) in content_of(&db).iter().zip(&there).enumerate() {
            assert_eq!(here, there, "row {place}");
        }
        assert_eq!(content_of(&db).len(), there.len());
    }
}

impl Chain for InMemory {
    fn append(&mut self, before: Option<Link>, row: &Row) -> Appended {
        let meanwhile = self.meanwhile.lock().pop_front();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let mut it = self.kept.lock();
        let fault = it.faults.pop().flatten();
        if fault == Some(Fault::FailOver) {
            let safe = it.safe;
            it.rows.truncate(safe);
        }
        if fault == Some(Fault::Cut) {
            it.cut_for = 6;
        }
        it.cut_for = it.cut_for.saturating_sub(1);
        if fault == Some(Fault::Lost) || it.cut_for > 0 {
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
            None | Some(Fault::FailOver) => Appended::Stored,
            Some(_) => Appended::Unknown("the connection was lost".to_owned()),
        }
    }

    fn newest(&mut self) -> Result<Option<Head>, String> {
        Ok(self.kept.lock().rows.last().map(Row::head))
    }

    fn read(&mut self, from: i64) -> Result<Vec<Row>, String> {
        let kept = self.kept.lock();
        let is_there = |it: &&Row| it.link.n >= kept.trimmed || matches!(it.kind, Kind::Made | Kind::Taken);
        Ok(kept.rows.iter().skip(from as usize).filter(is_there).take(10).cloned().collect())
    }

    fn taken(&mut self, epoch: i64) -> Result<Option<Row>, String> {
        Ok(self.rows().into_iter().find(|it| it.kind == Kind::Taken && it.epoch == epoch))
    }

    fn put_piece(&mut self, n: i64, epoch: i64, piece: i64, body: &[u8]) -> Result<(), String> {
        let mut kept = self.kept.lock();
        match &mut kept.pieces_left {
            Some(0) => {
                kept.pieces_refused += 1;
                return Err("the connection was lost".to_owned());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match kept.pieces.insert((n, epoch, piece), body.to_vec()) {
            Some(_) => Err("the key is taken".to_owned()),
            None => Ok(()),
        }
    }

    fn base(&mut self) -> Result<Option<Base>, String> {
        let kept = self.kept.lock();
        let whole = kept.pieces.iter().rev().filter(|((_, _, piece), _)| *piece == 0);
        let bases = whole.map(|((n, epoch, _), body)| Base::read(*n, *epoch, body).expect("it can be read"));
        Ok(bases.into_iter().find(|it| kept.rows.get(it.at.n as usize).is_some_and(|row| row.link == it.at)))
    }

    fn piece(&mut self, base: &Base, piece: i64) -> Result<Vec<u8>, String> {
        let kept = self.kept.lock();
        kept.pieces.get(&(base.at.n, base.epoch, piece)).cloned().ok_or_else(|| "it is gone".to_owned())
    }

    fn trim(&mut self, base: &Base) -> Result<bool, String> {
        let mut kept = self.kept.lock();
        kept.trimmed = kept.trimmed.max(base.at.n);
        kept.pieces.retain(|(n, _, _), _| *n >= base.at.n);
        Ok(false)
    }

    fn after(&mut self, n: i64) -> Result<(u64, u64), String> {
        let rows = self.rows();
        let after = rows.iter().skip((n + 1) as usize);
        Ok((after.clone().count() as u64, after.map(|it| it.body.len() as u64).sum()))
    }

    fn wait(&mut self, time: Duration) {
        self.now_ms.fetch_add(time.as_millis() as i64, Ordering::Relaxed);
    }
}

/// All rows of all tables, in the order of their first columns.
fn content_of(db: &Connection) -> Vec<String> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut content = Vec::new();
    for table in rows(db, tables, [], |row| row.get::<_, String>(0)).expect("a table") {
        let mut select = db.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).expect("a query");
        let count = select.column_count();
        let mut found = select.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            let values = (0..count).map(|place| row.get::<_, Value>(place).expect("a value"));
            content.push(format!("{table} {:?}", values.collect::<Vec<_>>()));
            // A row without statements, after one that was only seen, comes with the next transaction.
            content.pop_if(|it| it.starts_with("meta [Text(\"chain\")"));
        }
    }
    content
}
