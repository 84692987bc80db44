//! The engine under deterministic simulation. One seed decides the clock, the items, the answers of the sink, the
//! crashes, and the order of all steps. A slow model predicts the results (rules D3 to D9).
//!
//! ```text
//! TICKWHEEL_SEEDS=100000 cargo test --release -p tickwheel-delivery simulation     # `make soak`
//! TICKWHEEL_SEED=4711 cargo test -p tickwheel-delivery simulation -- --nocapture   # one seed again, step by step
//! ```
//!
//! The model knows the content of the disk. A group takes everything that is submitted or settled when it begins. It is
//! on disk as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::testing::{folder_in_memory, play_seeds};
use crate::due::pace::Rate;
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::due::window::{Bounds, State};
use crate::group::writer::{Begun, Committed};
use crate::message::incoming::Digest;
use crate::message::partition::Earliest;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::store::file::owner::Ownership;
use crate::store::maintenance::check;
use crate::store::replica::tests::memory::{Fault, InMemory};
use crate::store::{Limits, Outcome, StoredDestination};
use tickwheel::Clock;
use types::{
    Destination, Failures, Flight, Key, Life, MAX_ATTEMPTS, Name, Random, Stored, Telling, Ticket, destination,
};

const START_MS: i64 = 1_700_000_000_000;
const STEPS: usize = 150;
/// Steps between two looks at the marks, which take longer than a step.
const MARKS_EVERY: usize = 7;

/// The engine, and the model's knowledge of it.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct World {
    random: Random,
    is_shown: bool,
    store: PathBuf,
    settings: Settings,
    /// The chain of the store, if it has one.
    chain: Option<InMemory>,
    /// How many destinations there are (D23).
    shares: i64,
    tenants: tenants::Tenants,
    events: events::Events,
    wall_us: Arc<AtomicI64>,
    engine: Engine,
    /// An engine of another store, in its place while there is none.
    nothing: Option<Engine>,
    submitted: Vec<Ticket>,
    begun: Option<(Begun, Vec<Ticket>)>,
    committed: Option<(Committed, Vec<Ticket>)>,
    /// The open messages before the last commit, and the last accepted message.
    before_commit: (Earliest, u64),
    stored: BTreeMap<Name, Vec<Stored>>,
    /// Cancels of messages that did not come, with the greatest possible age of the store at that time.
    cancels: BTreeMap<Name, i64>,
    accepted: u64,
    /// Cancels of many messages, on disk: the key or `None` for all, and the last message that each cancel is about.
    actions: VecDeque<(Option<u8>, u64)>,
    /// The log of the destination: the messages that it got, in order. `None` if it keeps no log.
    log: Option<Vec<i64>>,
    telling: Telling,
    bad: i64,
    /// The greatest possible age of the store by its own clock, and how far the wall clock was stepped ahead since it
    /// was opened.
    age_ms: i64,
    ahead_ms: i64,
    largest: usize,
    /// The wall clock was stepped, and the engine does not know it.
    is_off: bool,
    lives: BTreeMap<Key, Life>,
    numbers: BTreeMap<i64, Key>,
    flights: VecDeque<Flight>,
    failures: BTreeMap<Key, Failures>,
    /// How old the world is, without the time between two processes.
    lived_us: u64,
    /// Since when a key, or a message without one, is without success.
    failing_since_us: BTreeMap<types::WaitsAs, u64>,
    /// Since when the key of each message was without success as the message failed first. After the store was opened again, a success of its key since then is not known.
    first_failed_us: BTreeMap<Key, u64>,
    was_opened_again: bool,
    /// Ordinary and spare.
    places: (usize, usize),
    /// The outage that was seen last: since when, and how many tries it had.
    down: Option<(u64, u64)>,
    crashes: u32,
    moment: u64,
    may_be_again: BTreeSet<Key>,
    must_be_again: BTreeSet<Key>,
    /// A send of this process had no answer, so the next send is marked.
    unanswered: BTreeSet<Key>,
    /// An earlier process had no answer, and the message waits for its next attempt: it keeps its place.
    kept: BTreeSet<Key>,
    is_healed: bool,
    /// On disk.
    is_paused: bool,
    paused_keys: BTreeSet<u8>,
    /// Keys that were paused in this group, even if they were resumed in it.
    paused_in_group: BTreeSet<u8>,
    /// When messages went out, since the process began.
    sent_us: Vec<u64>,
}

macro_rules! show {
    ($world:expr, $($text:tt)*) => {
        if $world.is_shown {
            eprintln!($($text)*);
        }
    };
}

mod answering;
mod asking;
mod crashing;
mod events;
mod marking;
mod pacing;
mod passing;
mod sending;
mod tenants;
mod types;
mod writing;

impl World {
    #[expect(clippy::too_many_lines, reason = "most of it is a list of fields")]
    fn new(seed: u64, folder: &Path, is_shown: bool) -> Self {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let messages = 3 + random.below(12) as usize;
        // A message may be larger than the bound of memory.
        let least_bytes = [250, 2_000][random.below(2) as usize];
        let keep_ids_ms = if random.below(2) == 0 { 2_000 + random.below(20_000) } else { 7 * 86_400_000 };
        // Messages that wait long leave memory.
        let waits_ms = if random.below(2) == 0 { vec![100, 1_500, 15_000] } else { Vec::new() };
        let shares = if random.below(3) == 0 { 3 } else { 1 };
        let mut settings = Settings {
            is_global: shares == 1 && random.below(6) == 0,
            horizon_ms: 200 + random.below(2_000),
            retry: Retry { max_attempts: MAX_ATTEMPTS, first_ms: 100, longest_ms: 1_000, waits_ms, waits_end: false },
            sink_timeout_ms: 2_000,
            unanswered_for_ms: if random.below(2) == 0 { 20_000 + random.below(100_000) } else { 86_400_000 },
            bounds: Bounds {
                messages,
                bytes: least_bytes + random.below(20_000) as usize,
                lane_messages: 1 + random.below(4) as usize,
                lane_bytes: least_bytes / 2 + random.below(3_000) as usize,
            },
            keep_ids_ms,
            rate: pacing::rate(&mut random).filter(|_| shares == 1),
            seed,
            limits: Limits::tiny(),
            ..Settings::default()
        };
        let mut tenants = tenants::Tenants::default();
        if !settings.is_global && random.below(2) == 0 {
            tenants.count = 1 + random.below(3) as u8;
            settings.tenant_concurrency = (random.below(3) == 0).then(|| 1 + random.below(3) as usize);
            settings.tenant_rate = (random.below(6) == 0).then_some(Rate { messages: 7, per_us: 1_000_000 });
        }
        let store = folder.join(format!("{seed}.db"));
        let chain = chain_of(seed, &mut settings);
        let wall_us = Arc::new(AtomicI64::new(START_MS * 1000));
        let engine = open(&store, &settings, &wall_us, 5_000_000);
        let log = (random.below(3) == 0).then(Vec::new);
        let places = match random.below(3) {
            0 => (usize::MAX, usize::MAX),
            _ => (1 + random.below(4) as usize, random.below(4) as usize),
        };
        let mut world = Self {
            random,
            is_shown,
            store,
            settings,
            chain,
            shares,
            tenants,
            events: events::Events::default(),
            wall_us,
            engine,
            nothing: None,
            submitted: Vec::new(),
            begun: None,
            committed: None,
            before_commit: (Earliest::default(), 0),
            stored: BTreeMap::new(),
            cancels: BTreeMap::new(),
            accepted: 0,
            actions: VecDeque::new(),
            log,
            telling: Telling::default(),
            bad: 0,
            age_ms: 0,
            ahead_ms: 0,
            largest: 0,
            is_off: false,
            lives: BTreeMap::new(),
            numbers: BTreeMap::new(),
            flights: VecDeque::new(),
            failures: BTreeMap::new(),
            lived_us: 0,
            failing_since_us: BTreeMap::new(),
            first_failed_us: BTreeMap::new(),
            was_opened_again: false,
            places,
            down: None,
            crashes: 0,
            moment: 0,
            may_be_again: BTreeSet::new(),
            must_be_again: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            kept: BTreeSet::new(),
            is_healed: false,
            is_paused: false,
            paused_keys: BTreeSet::new(),
            paused_in_group: BTreeSet::new(),
            sent_us: Vec::new(),
        };
        world.engine.with_store(|store| {
            store.begin().unwrap();
            for share in 1..shares {
                let (name, settings) = (destination(share).into(), r#"{"url":"http://d/"}"#.into());
                let set = store.put_destination(StoredDestination { name, settings, ..Default::default() }).unwrap();
                assert_eq!(set.share, share);
            }
            for number in 1..=world.tenants.count {
                assert_eq!(store.tenant(&tenants::tenant(number)).unwrap(), i64::from(number));
            }
            store.commit().unwrap();
        });
        world.start();
        world
    }

    fn start(&mut self) {
        self.check_chain();
        let (young, spare) = self.places;
        let limits = PlaceLimits { young, spare, hanging: 0, ..PlaceLimits::NONE };
        self.engine.set_places(limits);
        let suspects = self.engine.with_store(|store| store.may_have_arrived()).unwrap();
        show!(self, "suspects {:?}", suspects.iter().map(|it| it.seq).collect::<Vec<_>>());
        let mut sink = Destination { log: self.log.clone(), asked: Vec::new(), arrived: Vec::new() };
        self.engine.recover(Some(&mut sink)).unwrap();
        for seq in sink.arrived {
            self.end(self.numbers[&seq], Outcome::Delivered);
        }
        self.note_kept();
        self.engine.start(self.engine.wall_clock());
        self.is_off = false;
        self.check_summary();
    }

    /// Another file that gets the rows of the chain is the same (D21).
    fn check_chain(&self) {
        if let Some(chain) = &self.chain {
            chain.check(&self.store);
        }
    }

    /// The chain gives a wrong answer, or none, to the next inserts.
    fn fail_chain(&mut self) {
        if let Some(chain) = &self.chain {
            let faults = [None, Some(Fault::Unheard), Some(Fault::Lost), Some(Fault::Cut)];
            chain.fail((0..self.random.below(4)).map(|_| faults[self.random.below(4) as usize]).collect());
        }
    }

    /// Every accepted message went out, or is still there (D11).
    fn check_summary(&self) {
        let it = self.engine.summary();
        let open = self.engine.open_count();
        assert_eq!(it.resumed + it.accepted, it.delivered + it.cancelled + it.undeliverable + open, "{it:?}");
        assert_eq!(it.not_delivered(), open);
        let expected = self.stored.values().flatten().filter(|it| it.end.is_none()).count() as u64;
        assert_eq!(open, expected, "messages are open");
    }

    fn wall_ms(&self) -> i64 {
        self.wall_us.load(Ordering::Relaxed) / 1000
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.submit(),
            22..34 => self.write_a_part(),
            34..46 => self.write(),
            46..62 => self.take(),
            62..76 => self.settle(),
            76..90 => self.advance(),
            90..92 => self.step_wall_clock(),
            92..94 => self.tell_some(),
            94..97 => self.pump(),
            97 => self.reopen(),
            _ => self.crash(),
        }
        let (messages, bytes) = self.engine.in_memory();
        assert!(messages <= self.settings.bounds.messages.max(1), "{messages} messages in memory");
        assert!(bytes <= self.settings.bounds.bytes.max(self.largest), "{bytes} bytes in memory");
        let dispatcher = self.engine.lock_dispatcher();
        let waits = |state| matches!(state, State::Uncommitted | State::Waiting);
        let found = dispatcher.window.slots().find(|(slot, it)| dispatcher.window.is_paused(*slot) && waits(it.state));
        assert!(found.is_none(), "{found:?} waits in memory, and its key is paused");
    }
}

/// Every second seed has a replicated store.
fn chain_of(seed: u64, settings: &mut Settings) -> Option<InMemory> {
    let chain = seed.is_multiple_of(2).then(InMemory::default);
    settings.replicate = chain.as_ref().map(InMemory::replicate);
    chain
}

fn open(store: &Path, settings: &Settings, wall_us: &Arc<AtomicI64>, start_us: u64) -> Engine {
    if store.exists() {
        check::tests::assert_whole(store, Digest::number);
    }
    let clock = Clock::manual(0);
    clock.set_us(start_us);
    let wall_us = wall_us.clone();
    let wall = move || wall_us.load(Ordering::Relaxed);
    let ownership = Ownership::take(store, &mut |_| (), &mut || false).unwrap();
    let engine = Engine::open(ownership, settings.clone(), clock, Arc::new(wall)).unwrap();
    engine.lock_dispatcher().others_until_us = 0; // what the process before sent has ended with it
    engine
}

fn play(seed: u64, is_shown: bool) {
    let folder = folder_in_memory(); // nothing here tests the disk
    let mut world = World::new(seed, folder.path(), is_shown);
    for step in 0..STEPS {
        world.step();
        if step % MARKS_EVERY == 0 {
            world.check_marks();
        }
    }
    world.heal();
    world.check_chain();
}

#[test]
fn whatever_happens_the_rules_hold() {
    play_seeds(300, play);
}
