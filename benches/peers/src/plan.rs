//! The plan: every work, and every side that can do it, by the names of the report.

use crate::measured::Measured;
use crate::pairs::SEVEN;
use crate::side::Side;
use crate::sides::binary_heap::Heap;
use crate::sides::btree_map::Map;
use crate::sides::delay_queue::Queue;
use crate::sides::hash_wheel::HashWheel;
use crate::sides::nexus::Nexus;
use crate::sides::single_threaded::SingleThreaded;
use crate::sides::slab_wheel::SlabWheel;
use crate::sides::tickwheel::Tickwheel;
use crate::sides::tokio_sleep::{self, Sleeps};
use crate::{calls, dense, driven, hold, memory, ours, pairs, works};

/// Our timer with `parking_lot`'s lock, in a program that was built with that feature.
pub const PARKING_LOT: &str = "tickwheel, parking_lot";

#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    pub name: &'static str,
    pub unit: &'static str,
    /// How many times more operations than in other works: a short work is repeated.
    pub times: usize,
}

const fn ns(name: &'static str) -> Work {
    Work { name, unit: "ns", times: 1 }
}

/// In the order of the report.
pub static WORKS: [Work; 28] = [
    ns("insert"),
    ns("insert, p99 of a call"),
    ns("insert, p99.9 of a call"),
    ns("cancel, one by one"),
    ns("cancel, p99 of a call"),
    ns("cancel, p99.9 of a call"),
    ns("cancel, 64 at a time"),
    ns("fire all"),
    ns("fire all, claimed"),
    ns("fire, 5,000 in each ms"),
    ns("fire, 100,000 in each tick of 10 ms"),
    ns("fire, all in one tick of 1 s"),
    ns("reset, one by one"),
    Work { times: 4, ..ns("rolling time-outs") },
    Work { times: 4, ..ns("pair, 1 thread") },
    Work { times: 4, ..ns("pair, 1 thread, no lock") },
    Work { times: 4, ..ns("pair after a burst") },
    Work { times: 4, ..ns("pair, 2 threads") },
    Work { times: 4, ..ns("pair, 7 threads") },
    Work { unit: "ms", times: 4, ..ns("pair, 7 threads, longest wait") },
    Work { unit: "µs", ..ns("wait beside a busy thread, p50") },
    Work { unit: "µs", ..ns("wait beside a busy thread, p99") },
    Work { unit: "µs", ..ns("wait beside a busy thread, longest") },
    Work { unit: "bytes/timer", ..ns("memory at peak") },
    Work { unit: "bytes/timer", ..ns("memory after all have gone") },
    Work { unit: "µs", ..ns("longest hold, 1M") },
    Work { unit: "µs", times: 6, ..ns("longest hold, 6M") },
    Work { unit: "µs", ..ns("longest hold, 65,536 buckets a level") },
];

/// One side at one work.
pub struct Row {
    pub work: &'static Work,
    pub side: &'static str,
    /// Another work that has the same figure.
    pub also: Option<&'static Work>,
    measure: Box<dyn Fn(usize) -> Measured>,
}

impl Row {
    pub fn count(&self, asked: usize) -> usize {
        asked * self.work.times
    }

    /// Whether this program can measure it.
    pub fn is_of_this_program(&self) -> bool {
        self.side != PARKING_LOT || cfg!(feature = "parking_lot")
    }

    pub fn measure(&self, asked: usize) -> Measured {
        (self.measure)(self.count(asked))
    }

    /// The names of the works that have this figure.
    pub fn works(&self) -> impl Iterator<Item = &'static str> {
        [self.work].into_iter().chain(self.also).map(|work| work.name)
    }

    pub fn has_figure_of(&self, asked: &str) -> bool {
        self.works().any(|work| work == asked)
    }
}

pub fn rows() -> Vec<Row> {
    let ours = SideRows::of_any::<Tickwheel<false>>("tickwheel")
        .and("cancel, 64 at a time", ours::cancel_many)
        .and("fire all", works::fire::<Tickwheel<false>>)
        .and("fire all, claimed", works::fire::<Tickwheel<true>>)
        .and("fire, 5,000 in each ms", dense::five_thousand_a_millisecond)
        .and("fire, 100,000 in each tick of 10 ms", dense::hundred_thousand_in_ten_milliseconds)
        .and("fire, all in one tick of 1 s", dense::all_in_one_second)
        .and("rolling time-outs", works::rolling::<Tickwheel<false>>)
        .and("pair, 1 thread", pairs::alone::<Tickwheel<false>>)
        .and("pair after a burst", ours::pair_after_a_burst)
        .and("pair, 2 threads", ours::pairs::<2>)
        .and("pair, 7 threads", ours::pairs::<SEVEN>)
        .and("pair, 7 threads, longest wait", ours::longest_wait_of_pairs)
        .and("wait beside a busy thread, p50", ours::wait_beside::<500>)
        .and("wait beside a busy thread, p99", ours::wait_beside::<990>)
        .and("wait beside a busy thread, longest", ours::wait_beside::<1000>)
        .and("memory after all have gone", ours::memory_after_all_have_gone)
        .and("longest hold, 1M", hold::longest)
        .and("longest hold, 6M", hold::longest)
        .and("longest hold, 65,536 buckets a level", hold::of_wide_levels);
    // Our timer in the mutex that the others are in: the difference is the cost of our own lock.
    let in_mutex = SideRows { side: "tickwheel, std mutex", rows: Vec::new() }.and_seven_threads::<Tickwheel<false>>();
    let parking_lot = SideRows { side: PARKING_LOT, rows: Vec::new() }
        .and("insert", works::insert::<Tickwheel<false>>)
        .and("cancel, one by one", works::cancel::<Tickwheel<false>>)
        .and("fire all", works::fire::<Tickwheel<false>>)
        .and("pair, 1 thread", pairs::alone::<Tickwheel<false>>)
        .and("pair, 2 threads", ours::pairs::<2>)
        .and("pair, 7 threads", ours::pairs::<SEVEN>)
        .and("pair, 7 threads, longest wait", ours::longest_wait_of_pairs)
        .and("wait beside a busy thread, p50", ours::wait_beside::<500>)
        .and("wait beside a busy thread, p99", ours::wait_beside::<990>)
        .and("wait beside a busy thread, longest", ours::wait_beside::<1000>);
    let single_threaded = SideRows::of_one_thread::<SingleThreaded>("tickwheel, Wheel");
    let queue = SideRows::of_any::<Queue>("DelayQueue")
        .and_fire("fire all", driven::fire::<Queue>)
        .and("memory after all have gone", memory::after_all_have_gone::<Queue>)
        .and("rolling time-outs", driven::rolling::<Queue>)
        .and("pair, 1 thread", pairs::alone_locked::<Queue>)
        .and("pair, 2 threads", pairs::locked::<Queue, 2>)
        .and_seven_threads::<Queue>();
    let sleeps = SideRows::of_any::<Sleeps>("tokio sleep")
        .and_fire("fire all", driven::fire::<Sleeps>)
        .and("memory after all have gone", memory::after_all_have_gone::<Sleeps>)
        .and("rolling time-outs", driven::rolling::<Sleeps>)
        .and("pair, 1 thread", pairs::alone::<Sleeps>)
        .and("pair, 2 threads", tokio_sleep::two_pairs);
    let nexus = SideRows::of_one_thread::<Nexus>("nexus-timer").and("pair, 2 threads", pairs::locked::<Nexus, 2>);
    let slab_wheel =
        SideRows::of_one_thread::<SlabWheel>("slab-wheel").and("pair, 2 threads", pairs::locked::<SlabWheel, 2>);
    // It counts its entries by `Rc`, so Rust keeps it on one thread.
    let hash = SideRows::of_one_thread::<HashWheel>("hierarchical_hash_wheel_timer");
    let map = SideRows::of_one_thread::<Map>("BTreeMap").and("pair, 2 threads", pairs::locked::<Map, 2>);
    let heap = SideRows::of_one_thread::<Heap>("BinaryHeap").and("pair, 2 threads", pairs::locked::<Heap, 2>);

    let mut rows: Vec<_> =
        [ours, single_threaded, in_mutex, parking_lot, queue, sleeps, nexus, slab_wheel, hash, map, heap]
            .into_iter()
            .flat_map(|side| side.rows)
            .collect();
    rows.sort_by_key(|row| WORKS.iter().position(|work| work == row.work)); // the sides of a work stay in order
    rows
}

/// The rows of one side.
struct SideRows {
    side: &'static str,
    rows: Vec<Row>,
}

impl SideRows {
    /// The works of every side.
    fn of_any<S: Side + 'static>(side: &'static str) -> Self {
        Self { side, rows: Vec::new() }
            .and("insert", works::insert::<S>)
            .and("insert, p99 of a call", calls::insert::<S, 990>)
            .and("insert, p99.9 of a call", calls::insert::<S, 999>)
            .and("cancel, one by one", works::cancel::<S>)
            .and("cancel, p99 of a call", calls::cancel::<S, 990>)
            .and("cancel, p99.9 of a call", calls::cancel::<S, 999>)
            .and("reset, one by one", works::reset::<S>)
            .and("memory at peak", memory::at_peak::<S>)
    }

    /// For a timer that belongs to one thread, and gets the time from its caller.
    fn of_one_thread<S: Side + 'static>(side: &'static str) -> Self {
        Self::of_any::<S>(side)
            .and_fire("fire all", works::fire::<S>)
            .and("rolling time-outs", works::rolling::<S>)
            .and("memory after all have gone", memory::after_all_have_gone::<S>)
            .and("pair, 1 thread", pairs::alone_locked::<S>)
            .and("pair, 1 thread, no lock", pairs::alone::<S>)
    }

    /// In a standard mutex, as [`pairs::locked`] does.
    fn and_seven_threads<S: Side + Send + 'static>(self) -> Self {
        self.and("pair, 7 threads", pairs::locked::<S, SEVEN>)
            .and("pair, 7 threads, longest wait", pairs::longest_wait_locked::<S>)
            .and("wait beside a busy thread, p50", pairs::wait_beside_locked::<S, 500>)
            .and("wait beside a busy thread, p99", pairs::wait_beside_locked::<S, 990>)
            .and("wait beside a busy thread, longest", pairs::wait_beside_locked::<S, 1000>)
    }

    fn and<M: Into<Measured> + 'static>(mut self, work: &str, measure: fn(usize) -> M) -> Self {
        let measure = Box::new(move |count| measure(count).into());
        self.rows.push(Row { work: work_named(work), side: self.side, also: None, measure });
        self
    }

    /// For timers that fire payloads and have nothing to claim: the figure is also that of *fire all, claimed*.
    fn and_fire<M: Into<Measured> + 'static>(self, work: &str, measure: fn(usize) -> M) -> Self {
        let mut side_rows = self.and(work, measure);
        if let Some(row) = side_rows.rows.last_mut() {
            row.also = Some(work_named("fire all, claimed"));
        }
        side_rows
    }
}

fn work_named(name: &str) -> &'static Work {
    WORKS.iter().find(|work| work.name == name).expect("a work of the plan")
}
