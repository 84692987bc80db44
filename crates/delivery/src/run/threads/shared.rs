//! The state that the threads of a running engine share: the engine, the senders and their sends, and the events to
//! report (rules D5, D6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::summary::Summary;
use crate::base::sync::{Condvar, Mutex, Rank, assert_none_is_held};
use crate::due::dispatcher::Event;
use crate::run::engine::Engine;
use crate::run::settings::Observer;
use crate::sinks::{OpenSink, SyncFn};

pub(super) const LOOK_AT_CLOCK_US: u64 = 1_000_000;
pub(super) const LOOK_AT_CLOCK: Duration = Duration::from_micros(LOOK_AT_CLOCK_US);
/// How long a sink may take to abort its sends.
pub(super) const ABORT: Duration = Duration::from_secs(1);
/// How long a run that has failed waits for the sends in flight.
pub(super) const LAST_SENDS: Duration = Duration::from_secs(10);
/// The observer is told of a sync that takes longer.
pub(super) const SLOW_SYNC: Duration = Duration::from_secs(3);

/// The shared state of all threads of an engine.
pub(super) struct Shared {
    /// The process that opened it.
    pub(super) process: u32,
    pub(super) engine: Engine,
    pub(super) open: OpenSink,
    pub(super) observer: Arc<dyn Observer>,
    /// The sender that waits for the timer waits here, with the dispatcher's lock.
    pub(super) leader: Condvar,
    pub(super) followers: Condvar,
    pub(super) has_leader: AtomicBool,
    /// How many senders wait for a message, if the sink answers at once. Changed with the dispatcher's lock.
    pub(super) idle: AtomicUsize,
    /// When the leader wakes up by itself.
    pub(super) sleeps_until_us: AtomicU64,
    pub(super) looked_at_us: AtomicU64,
    pub(super) is_closing: AtomicBool,
    /// The end does not wait until the observer has all dead letters.
    pub(super) leaves_letters: AtomicBool,
    /// Until when a close waits.
    end: Mutex<Option<Instant>>,
    pub(super) senders: Mutex<Senders>,
    pub(super) sender_ended: Condvar,
    pub(super) failure: Mutex<Option<DeliveryError>>,
    pub(super) telling: Mutex<Telling>,
    pub(super) to_tell: Condvar,
}

/// The threads that send.
#[derive(Default)]
pub(super) struct Senders {
    pub(super) next: u64,
    /// The working senders, and the send of each.
    pub(super) working: Vec<(u64, Option<u64>)>,
    /// How many were cut off and have not returned.
    pub(super) hanging: usize,
    /// How many are being opened.
    pub(super) opening: usize,
    /// The system has given no thread for the last one.
    pub(super) lacks_threads: bool,
    /// The destination is a `ReplySink`, and one sender is enough.
    pub(super) answers_later: bool,
    /// This sender has not ended. It ends soon after the engine is halted.
    pub(super) has_reply_sender: bool,
    pub(super) syncs: Vec<(u64, SyncFn)>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

/// The work of the teller, and the state of the threads at the end.
#[derive(Default)]
pub(super) struct Telling {
    pub(super) events: Events,
    /// The writer has ended.
    pub(super) is_over: bool,
    /// The teller has ended.
    pub(super) has_ended: bool,
    pub(super) is_woken: bool,
    /// A sync began then, and has not returned. `None` also if the observer was told that it is slow.
    pub(super) syncing_since: Option<Instant>,
    /// The store was closed.
    pub(super) closed: Option<Result<Summary, DeliveryError>>,
}

impl Telling {
    /// How long until the running sync is slow. `None`: there is none to watch.
    pub(super) fn slow_sync_in(&self) -> Option<Duration> {
        self.syncing_since.map(|since| SLOW_SYNC.saturating_sub(since.elapsed()))
    }
}

/// Events that wait for the observer, bounded by count.
#[derive(Default)]
pub(super) struct Events {
    waiting: Vec<Event>,
    left_out: u64,
}

impl Events {
    /// The most events of all kinds. [`Event::Failed`] has its own limit, because there may be one for each message.
    const MOST: usize = 2_000;
    const MOST_FAILED: usize = 1_000;

    pub(super) fn add(&mut self, event: Event) {
        let most = if matches!(event, Event::Failed { .. }) { Self::MOST_FAILED } else { Self::MOST };
        if self.waiting.len() < most {
            self.waiting.push(event);
        } else {
            self.left_out += 1;
        }
    }

    /// Takes all events. The last one says how many were left out, if any were.
    pub(super) fn take(&mut self) -> Vec<Event> {
        let Self { mut waiting, left_out } = std::mem::take(self);
        if left_out > 0 {
            waiting.push(Event::LeftOut { count: left_out });
        }
        waiting
    }
}

impl Shared {
    pub(super) fn new(engine: Engine, open: OpenSink, observer: Arc<dyn Observer>) -> Self {
        Self {
            process: std::process::id(),
            engine,
            open,
            observer,
            leader: Condvar::default(),
            followers: Condvar::default(),
            has_leader: AtomicBool::new(false),
            idle: AtomicUsize::new(0),
            sleeps_until_us: AtomicU64::new(0),
            looked_at_us: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            leaves_letters: AtomicBool::new(false),
            end: Mutex::default(),
            senders: Mutex::ranked(Rank::Senders, Senders::default()),
            sender_ended: Condvar::default(),
            failure: Mutex::new(None),
            telling: Mutex::ranked(Rank::Telling, Telling::default()),
            to_tell: Condvar::default(),
        }
    }

    /// Limits how long a close waits, also a close that waits already.
    pub(super) fn end_within(&self, timeout: Option<Duration>) {
        let Some(end) = timeout.and_then(|timeout| Instant::now().checked_add(timeout)) else { return };
        {
            let mut earliest = self.end.lock();
            *earliest = Some(earliest.map_or(end, |earliest| earliest.min(end)));
        }
        // Each lock is taken, so that no thread between its check and its wait is missed.
        drop(self.senders.lock());
        self.sender_ended.notify_all();
        drop(self.telling.lock());
        self.to_tell.notify_all();
    }

    /// How long a close still waits. `None`: without a limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.lock().map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether this process was forked in a function of the program. Such a process has only this thread of the engine,
    /// and the thread may only leave.
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Whether no further sender may begin: a close has begun, or the run has failed.
    pub(super) fn is_ending(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst) || self.failure.lock().is_some()
    }

    pub(super) fn fail(&self, error: &DeliveryError) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        {
            let mut dispatcher = self.engine.lock_dispatcher();
            dispatcher.halt();
            self.leader.notify_all();
            self.followers.notify_all();
        }
        self.engine.queue.fail(error);
        self.wake_teller();
    }
}

pub(super) fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    run: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> Result<JoinHandle<()>, DeliveryError> {
    assert_none_is_held(); // the system may need time
    let shared = shared.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&shared))
        .map_err(|error| DeliveryError::no_thread(&error))
}
