//! A store in a folder of the test's own, with clocks that the test sets, and messages to put into it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Message};
use crate::store::replica::tests::memory::InMemory;
use crate::store::{Accepted, Action, ActionKind, Done, Filter, Limits, Options, Outcome, Store, WaitingRow};

pub(super) const DAY_MS: i64 = 86_400_000;

/// A folder that is removed with the test, and the clocks of its stores.
pub(super) struct Shelf {
    folder: PathBuf,
    pub(super) wall_ms: Arc<AtomicI64>,
    pub(super) monotonic_ms: Arc<AtomicI64>,
    pub(super) keep_ids_ms: i64,
    pub(super) limits: Limits,
    pub(super) number: fn(Digest) -> i64,
    pub(super) chain: Option<InMemory>,
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Limits so small that everything happens soon.
pub(super) const TINY: Limits = Limits {
    first_due_times: 1,
    idle_shares: 0,
    names_in_memory: 6,
    names_in_block: 2,
    blocks_in_step: 2,
    writes_of_name: 0,
    runs_in_merge: 2,
    names_in_run: 40,
    runs_by_day: 3,
    filter_bytes: 400,
    chunk: 3,
    chunks_open: 2,
    bodies_in_memory: 6,
    bodies_in_batch: 4,
    body_bytes_in_batch: 8,
    bodies_in_step: 3,
    body_bytes_in_step: 6,
    forgotten_in_step: 3,
    vacuum_pages: 1,
    free_pages: 2,
    shortest_part_ms: 1,
    base_bytes: 1,
    base_piece: 65_536,
    base_look_ms: 1,
};

impl Shelf {
    pub(super) fn new(limits: Limits) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tickwheel-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self {
            folder,
            wall_ms: Arc::new(AtomicI64::new(1_000_000)),
            monotonic_ms: Arc::new(AtomicI64::new(77)),
            keep_ids_ms: 7 * DAY_MS,
            limits,
            number: Digest::number,
            chain: None,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// If there is a chain: another file gets all of its rows, and is then the same.
    pub(super) fn check_replica(&self) {
        if let Some(chain) = &self.chain {
            chain.check(&self.path());
        }
    }

    /// Lets time pass while the process runs.
    pub(super) fn pass(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::Relaxed);
        self.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Opens the store, once more after each crash. A dropped store loses its uncommitted changes.
    pub(super) fn open(&self) -> Store {
        let clock = |ms: &Arc<AtomicI64>| {
            let ms = Arc::clone(ms);
            Box::new(move || ms.load(Ordering::Relaxed))
        };
        let mut options = Options::new(self.keep_ids_ms, clock(&self.monotonic_ms), clock(&self.wall_ms));
        options.limits = self.limits;
        let to = self.chain.as_ref().map(InMemory::replicate);
        options.replicate = to.map(|to| (to.clone(), Arc::new(to.lease())));
        Store::open_with(&self.path(), options, self.number, "OFF").expect("it opens")
    }
}

pub(super) fn incoming_with(key: Option<&str>, id: &str, due_ms: i64, payload: &[u8]) -> Incoming {
    Incoming::of(Message { body: Body::new(key, id, payload, true), due_ms, delay_ms: None })
}

pub(super) fn incoming(id: &str, due_ms: i64) -> Incoming {
    incoming_with(None, id, due_ms, b"1")
}

/// The answer for a message whose name was free.
pub(super) fn new(seq: i64) -> Accepted {
    Accepted::New { seq, again: None, first: None, redelivered: false }
}

pub(super) fn done(seq: i64, due_ms: i64, outcome: Outcome, at_ms: i64) -> Done {
    Done { seq, due_ms, outcome, at_ms, lateness_us: None, attempts: 1, redelivered: false }
}

pub(super) fn held(seq: i64, due_ms: i64, lane: Option<i64>) -> WaitingRow {
    WaitingRow::untried(due_ms, seq, lane, 100)
}

/// A cancel of messages 1 to 9.
pub(super) fn cancel_of(filter: Filter) -> Action {
    let (id, kind, at) = (String::new(), ActionKind::Cancel, (i64::MIN, i64::MIN));
    Action { id, kind, filter, through: 9, at, share: 0, changed: 0, too_late: 0 }
}

/// The positions of all messages in `waiting`.
pub(super) fn positions(store: &Store) -> Vec<(i64, i64)> {
    let rows = store.plan(0, (i64::MIN, 0), i64::MAX, 10_000).expect("a plan");
    rows.iter().map(|row| (row.due_ms, row.seq)).collect()
}

pub(super) fn count(store: &Store, table: &str) -> i64 {
    store.db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count")
}

/// A small random generator. The same seed repeats a test.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// True once in `times` times, on average.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Maps all names to eight numbers, so each number has many names.
pub(super) fn eight_numbers(digest: Digest) -> i64 {
    (digest.number() & 7).wrapping_sub(4) << 61
}

/// Runs the actions in a transaction of their own.
pub(super) fn commit<T>(store: &mut Store, actions: impl FnOnce(&mut Store) -> T) -> T {
    store.begin().expect("it begins");
    let result = actions(store);
    store.commit().expect("it is committed");
    result
}

/// Runs upkeep until nothing is left to do.
pub(super) fn tidy(store: &mut Store) {
    while commit(store, |store| store.upkeep(true).expect("upkeep")) {}
}
