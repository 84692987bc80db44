//! Tools for tests of a running engine.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item, Receipt};
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Cancel, Message};
use crate::run::engine::Engine;
use crate::run::settings::{Observer, Settings};
use crate::run::threads::Running;
use crate::sinks::{Delivery, OpenSink, Verdict, Verdicts};
use crate::store::file::owner::Ownership;
use crate::store::maintenance::check;
use crate::store::{Letter, PartKind, Store};
use tickwheel::Clock;

/// Longer than any wait of a test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// When an engine by hand starts.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// Plays the seeds below `TICKWHEEL_SEEDS`, which may be a range such as `1000..2000`, or below `usual`, on all processors.
/// `TICKWHEEL_SEED` plays one alone. The play is told whether it is alone.
pub(crate) fn play_seeds(usual: u64, play: impl Fn(u64, bool) + Sync) {
    let number = |text: &str| text.parse().expect("a number");
    if let Ok(seed) = std::env::var("TICKWHEEL_SEED") {
        return play(number(&seed), true);
    }
    let range = std::env::var("TICKWHEEL_SEEDS").unwrap_or_else(|_| usual.to_string());
    let (first, end) = range.split_once("..").unwrap_or(("0", &range));
    let (seeds, next) = (number(end), AtomicU64::new(number(first)));
    let play_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            if let Err(error) = catch_unwind(AssertUnwindSafe(|| play(seed, false))) {
                eprintln!("seed {seed}: TICKWHEEL_SEED={seed} repeats it");
                next.store(seeds, Ordering::Relaxed); // the other threads end too
                resume_unwind(error);
            }
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(play_some)));
    });
}

pub(crate) fn put(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let body = Body::new(key, id, b"{\"x\":1}", true);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

pub(crate) fn cancel(key: Option<&str>, id: &str) -> Item {
    Item::Cancel(Cancel { id: id.to_owned(), key: key.map(str::to_owned), keep_days: 0 })
}

impl Item {
    /// Pauses a key, or all messages, or resumes them.
    pub(crate) fn pause(key: Option<String>, is_paused: bool) -> Self {
        let part = if key.is_some() { PartKind::Key } else { PartKind::All };
        Self::pause_part(part, &key.unwrap_or_default(), is_paused)
    }

    pub(crate) fn pause_part(part: PartKind, name: &str, is_paused: bool) -> Self {
        Self::Pause { part, name: name.to_owned(), is_paused, until_ms: None }
    }
}

/// A record that could not be read.
pub(crate) fn letter() -> Item {
    Item::Letter(Letter {
        source: "input".to_owned(),
        line: 1,
        reason: "it is bad".to_owned(),
        allowed: "a good one".to_owned(),
        record: b"{}".to_vec(),
    })
}

/// Messages without a key, all overdue, in the order of their ids.
pub(crate) fn many(count: usize) -> Vec<Item> {
    (0..count).map(|id| put(None, &id.to_string(), 1 + id as i64)).collect()
}

/// Retries soon.
pub(crate) fn settings() -> Settings {
    Settings {
        retry: Retry { max_attempts: 3, first_ms: 10, longest_ms: 50, waits_ms: Vec::new(), waits_end: false },
        sink_timeout_ms: 30_000,
        ..Settings::default()
    }
}

/// The dead letters and events that the observer got.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<(Vec<Event>, Vec<Letter>)>>);

impl Observer for Told {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        self.0.lock().1.extend_from_slice(letters);
        Ok(())
    }

    fn events(&self, mut events: Vec<Event>) {
        self.0.lock().0.append(&mut events);
    }
}

impl Told {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().0.clone()
    }

    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.0.lock().1.clone()
    }

    /// The reasons for which the destination went down, and `up` for each time that it came back.
    pub(crate) fn outages(&self) -> Vec<String> {
        let told = |event| match event {
            Event::Down { reason, .. } => Some(reason),
            Event::Up { .. } => Some("up".to_owned()),
            _ => None,
        };
        self.events().into_iter().filter_map(told).collect()
    }
}

/// An engine that delivers from a store in a folder of its own.
pub(crate) struct Delivering {
    pub(crate) running: Running,
    pub(crate) told: Told,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

impl Delivering {
    pub(crate) fn start(settings: Settings, open: OpenSink) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), settings, open)
    }

    pub(crate) fn with_threads(threads: usize, settings: Settings, open: OpenSink) -> Self {
        Self::in_folder(Arc::new(tempfile::tempdir().unwrap()), threads, settings, open)
    }

    pub(crate) fn on(folder: Arc<tempfile::TempDir>, settings: Settings, open: OpenSink) -> Self {
        Self::in_folder(folder, 4, settings, open)
    }

    pub(crate) fn in_folder(
        folder: Arc<tempfile::TempDir>,
        threads: usize,
        settings: Settings,
        open: OpenSink,
    ) -> Self {
        let told = Told::default();
        let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
        let settings = Settings { observer: Arc::new(told.clone()), ..settings };
        let running = Running::open(ownership, settings, open, threads).unwrap();
        running.start(running.engine().wall_clock());
        Self { running, told, folder }
    }

    pub(crate) fn submit(&self, items: Vec<Item>) {
        self.running.engine().submit(items).unwrap().wait(Some(LONG)).unwrap().unwrap();
    }
}

/// A folder in memory if the system has one, for tests that are not about the disk.
pub(crate) fn folder_in_memory() -> tempfile::TempDir {
    let builder = &mut tempfile::Builder::new();
    let made = builder.prefix("tickwheel-").tempdir_in(Path::new("/dev/shm"));
    made.or_else(|_| builder.tempdir()).expect("there is a temporary folder")
}

impl Engine {
    /// Runs this with the store of an open engine.
    pub(crate) fn with_store<T>(&self, run: impl FnOnce(&mut Store) -> T) -> T {
        self.with_writer(|writer| run(&mut writer.store)).unwrap()
    }

    /// Takes the next messages to send, with the number of the send. `None` if nothing can be sent now.
    pub(crate) fn take(&self, most: usize, most_bytes: usize, is_cut_off: bool) -> Option<(u64, Vec<Delivery>)> {
        self.take_locked(&mut self.lock_dispatcher(), most, most_bytes, is_cut_off)
    }

    /// Takes the events of the destination and the clock since the last call.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock_dispatcher().events)
    }

    /// Places all waiting messages again if the wall clock was stepped.
    pub(crate) fn follow_clock(&self) {
        if self.lock_dispatcher().follow_clock() {
            self.queue.wake();
        }
    }

    /// Stops sending, and takes no more items. Waiting tickets get the error.
    pub(crate) fn fail(&self, error: &DeliveryError) {
        self.lock_dispatcher().halt();
        self.queue.fail(error);
    }
}

/// An engine that a test drives by hand, on clocks that it moves.
pub(crate) struct ByHand {
    pub(crate) engine: Engine,
    wall_us: Arc<AtomicI64>,
    settings: Settings,
    folder: Arc<tempfile::TempDir>,
}

impl ByHand {
    pub(crate) fn start(settings: Settings) -> Self {
        let world = Self::open(settings);
        world.begin();
        world
    }

    /// Nothing is due yet.
    pub(crate) fn open(settings: Settings) -> Self {
        Self::on(Arc::new(folder_in_memory()), settings, START_MS * 1000).unwrap()
    }

    /// From now on messages are due by the wall clock.
    pub(crate) fn begin(&self) {
        self.engine.start(self.engine.wall_clock());
    }

    fn on(folder: Arc<tempfile::TempDir>, settings: Settings, wall_us: i64) -> Result<Self, DeliveryError> {
        let wall_us = Arc::new(AtomicI64::new(wall_us));
        let wall = wall_us.clone();
        let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
        let wall = Arc::new(move || wall.load(Ordering::Relaxed));
        let engine = Engine::open(ownership, settings.clone(), Clock::manual(0), wall)?;
        Ok(Self { engine, wall_us, settings, folder })
    }

    /// Starts a new process on the same store. Uncommitted work is lost.
    pub(crate) fn again(self) -> Self {
        let world = self.reopen();
        world.begin();
        world
    }

    /// The same, and nothing is due yet.
    pub(crate) fn reopen(self) -> Self {
        let settings = self.settings.clone();
        self.try_reopen_with(settings).unwrap()
    }

    /// The same with other settings.
    pub(crate) fn try_reopen_with(self, settings: Settings) -> Result<Self, DeliveryError> {
        let wall_us = self.wall_us.load(Ordering::Relaxed);
        let folder = self.end();
        check::tests::assert_whole(&folder.path().join("store.db"), Digest::number);
        let world = Self::on(folder, settings, wall_us)?;
        world.engine.lock_dispatcher().others_until_us = 0; // what the process before sent has ended with it
        Ok(world)
    }

    /// Starts a process on the store of an earlier one.
    pub(crate) fn go_on(folder: Arc<tempfile::TempDir>) -> Self {
        let world = Self::on(folder, Settings::default(), START_MS * 1000).unwrap();
        world.begin();
        world
    }

    /// Ends the process, and keeps the store.
    pub(crate) fn end(self) -> Arc<tempfile::TempDir> {
        self.folder
    }

    pub(crate) fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("store.db")
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        self.wall_us.load(Ordering::Relaxed) / 1000
    }

    pub(crate) fn advance_ms(&self, ms: u64) {
        self.advance_us(ms * 1_000);
    }

    pub(crate) fn advance_us(&self, us: u64) {
        self.engine.clock().set_us(self.engine.clock().now_us() + us);
        self.wall_us.fetch_add(us as i64, Ordering::Relaxed);
    }

    pub(crate) fn step_wall_clock_ms(&self, ms: i64) {
        self.wall_us.fetch_add(ms * 1000, Ordering::Relaxed);
    }

    /// When the timer has its next task.
    pub(crate) fn next_wake_us(&self) -> u64 {
        self.engine.timer.next_wake_us().expect("there is something on the timer")
    }

    /// Writes until nothing is left to write.
    pub(crate) fn write(&self) {
        let mut groups = 0..100_000;
        while self.engine.write(&|| Ok(())).unwrap() {
            groups.next().expect("the writer comes to rest");
        }
    }

    pub(crate) fn submit(&self, items: Vec<Item>) -> Receipt {
        self.engine.submit(items).unwrap()
    }

    /// Submits, commits, and gives the answers.
    pub(crate) fn give(&self, items: Vec<Item>) -> Vec<Answer> {
        let receipt = self.submit(items);
        self.write();
        answered(&receipt).expect("it is committed").unwrap()
    }

    /// Takes one send, which has no answer yet.
    pub(crate) fn take(&self) -> Option<(u64, Vec<Delivery>)> {
        self.engine.take(64, 1 << 20, false)
    }

    /// Takes the next send. A message that has waited long must first be read from the store, and its attempt may have to
    /// be on disk.
    pub(crate) fn next_send(&self) -> Option<(u64, Vec<Delivery>)> {
        (0..2).fold(self.take(), |taken, _| {
            taken.or_else(|| {
                self.write();
                self.take()
            })
        })
    }

    /// Sends all messages that can go out now. `answer` gives the verdict of each.
    pub(crate) fn deliver(&self, answer: impl Fn(&Delivery) -> Verdict) -> Vec<Delivery> {
        let mut all = Vec::new();
        self.write();
        while let Some((number, deliveries)) = self.next_send() {
            let verdicts = deliveries.iter().map(&answer).collect();
            self.engine.settle(number, Verdicts::Each(verdicts), None);
            all.extend(deliveries);
            self.write();
        }
        all
    }

    /// Does the same while time passes. The engine wakes for its timer, and to load the next messages.
    pub(crate) fn pass_ms(&self, ms: u64, answer: impl Fn(&Delivery) -> Verdict) -> Vec<Delivery> {
        let end_us = self.engine.clock().now_us() + ms * 1_000;
        let mut all = self.deliver(&answer);
        loop {
            let now_us = self.engine.clock().now_us();
            if now_us >= end_us {
                return all;
            }
            let load_us = now_us + self.settings.horizon_ms * 250;
            let next_us = self.engine.timer.next_wake_us().unwrap_or(u64::MAX).max(now_us + 1_000);
            self.advance_us(next_us.min(load_us).min(end_us) - now_us);
            all.extend(self.deliver(&answer));
        }
    }

    /// Sends everything that can go out now, and all of it arrives.
    pub(crate) fn sent(&self) -> Vec<Delivery> {
        let mut all = Vec::new();
        for _ in 0..8 {
            self.write();
            if let Some((flight, deliveries)) = self.take() {
                self.engine.settle(flight, Verdicts::Delivered, None);
                all.extend(deliveries);
            }
        }
        self.write();
        all
    }

    /// Sends once, and all of it arrives. Returns the ids.
    pub(crate) fn send(&self) -> Vec<String> {
        let Some((flight, deliveries)) = self.take() else { return Vec::new() };
        self.engine.settle(flight, Verdicts::Delivered, None);
        deliveries.iter().map(|it| it.body.id().to_owned()).collect()
    }
}

/// The answer of a destination that takes everything.
pub(crate) fn arrives(_: &Delivery) -> Verdict {
    Verdict::Delivered
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|it| it.body.id()).collect()
}

/// The answers that have come by now.
pub(crate) fn answered(receipt: &Receipt) -> Option<Result<Vec<Answer>, DeliveryError>> {
    receipt.wait(Some(Duration::ZERO)).map(|answers| Ok(answers?.given))
}

/// Starts a thread of the test.
pub(crate) fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name("test".to_owned()).spawn(body).unwrap()
}

/// Waits until this holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// The name of a test as the test binary takes it. A test uses this to run another test of this module in a new
/// process.
pub(crate) fn test_named(module_path: &str, name: &str) -> String {
    let (_crate, module) = module_path.split_once("::").unwrap();
    format!("{module}::{name}")
}
