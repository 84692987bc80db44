//! What the threads of a running engine share: the engine, which sender has which send, what is to be told (rules D5, D6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::summary::Summary;
use crate::base::sync::{Condvar, Mutex, Rank, assert_none_is_held};
use crate::due::dispatcher::Event;
use crate::run::engine::Engine;
use crate::sinks::{OpenSink, SyncFn};
use crate::store::Letter;

/// How many senders that hang are replaced.
pub(super) const MOST_HANGING: usize = 8;

pub(super) const LOOK_AT_CLOCK_US: u64 = 1_000_000;
pub(super) const LOOK_AT_CLOCK: Duration = Duration::from_micros(LOOK_AT_CLOCK_US);
/// How long a sink may take to abort what it has in flight.
pub(super) const ABORT: Duration = Duration::from_secs(1);

/// What a program is told, in a thread of its own: one that is slow holds up nothing but what it is told next.
///
/// [`OpenOptions::with_observer`](crate::OpenOptions::with_observer) has an example.
pub trait Observer: Send + Sync {
    /// Dead letters, which are on disk. They are told again after a crash before this returned.
    ///
    /// # Errors
    /// They could not be taken: this ends the run.
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError>;

    /// What the destination and the clock did.
    fn events(&self, events: Vec<Event>);
}

/// One for all threads of an engine.
pub(super) struct Shared {
    /// The process that opened it.
    pub(super) process: u32,
    pub(super) engine: Engine,
    pub(super) open: OpenSink,
    pub(super) observer: Box<dyn Observer>,
    /// The sender that waits for the timer waits here, with the dispatcher's lock.
    pub(super) leader: Condvar,
    pub(super) followers: Condvar,
    pub(super) has_leader: AtomicBool,
    /// When the leader wakes up by itself.
    pub(super) sleeps_until_us: AtomicU64,
    pub(super) looked_at_us: AtomicU64,
    pub(super) is_closing: AtomicBool,
    /// The end does not wait for dead letters to be told.
    pub(super) leaves_letters: AtomicBool,
    /// Until when a close waits for what hangs.
    end: Mutex<Option<Instant>>,
    pub(super) senders: Mutex<Senders>,
    pub(super) sender_ended: Condvar,
    pub(super) failure: Mutex<Option<DeliveryError>>,
    /// Wakes the teller.
    pub(super) telling: Mutex<Telling>,
    pub(super) to_tell: Condvar,
}

/// The threads that send.
#[derive(Default)]
pub(super) struct Senders {
    pub(super) next: u64,
    /// Those that work, and the send that each has in hand.
    pub(super) working: Vec<(u64, Option<u64>)>,
    /// How many were cut off and have not come back.
    pub(super) hanging: usize,
    /// How many of those were not replaced yet: too many hang, or the system gave no thread.
    pub(super) missing: usize,
    /// How many have a sink that answers later. They end soon after the engine is halted.
    pub(super) overlapping: usize,
    pub(super) syncs: Vec<(u64, SyncFn)>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

/// What the teller has to tell.
#[derive(Default)]
pub(super) struct Telling {
    pub(super) events: Events,
    /// The writer has ended.
    pub(super) is_over: bool,
    /// The teller has ended.
    pub(super) has_ended: bool,
    pub(super) is_woken: bool,
    /// The store was closed.
    pub(super) closed: Option<Result<Summary, DeliveryError>>,
}

/// Events that wait to be told, bounded by count.
#[derive(Default)]
pub(super) struct Events {
    waiting: Vec<Event>,
    left_out: u64,
}

impl Events {
    /// Most of all kinds together; and of [`Event::Failed`], of which there may be one for each message.
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

    /// All of them, and at their end how many were left out.
    pub(super) fn take(&mut self) -> Vec<Event> {
        let Self { mut waiting, left_out } = std::mem::take(self);
        if left_out > 0 {
            waiting.push(Event::LeftOut { count: left_out });
        }
        waiting
    }
}

impl Shared {
    pub(super) fn new(engine: Engine, open: OpenSink, observer: Box<dyn Observer>) -> Self {
        Self {
            process: std::process::id(),
            engine,
            open,
            observer,
            leader: Condvar::default(),
            followers: Condvar::default(),
            has_leader: AtomicBool::new(false),
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

    /// A close waits no longer than that; also one that waits now.
    pub(super) fn end_within(&self, timeout: Option<Duration>) {
        let Some(end) = timeout.and_then(|timeout| Instant::now().checked_add(timeout)) else { return };
        {
            let mut earliest = self.end.lock();
            *earliest = Some(earliest.map_or(end, |earliest| earliest.min(end)));
        }
        // With each lock, so that a thread between its look and its wait is not missed.
        drop(self.senders.lock());
        self.sender_ended.notify_all();
        drop(self.telling.lock());
        self.to_tell.notify_all();
    }

    /// How long a close waits from now on; `None`: for ever.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.lock().map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether this is a child that was forked in a function of the program's. It has nothing of the engine but this thread,
    /// which may only leave.
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Ends the run with this error.
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

/// Starts a thread.
pub(super) fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    run: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> Result<JoinHandle<()>, DeliveryError> {
    assert_none_is_held(); // the system may take its time
    let shared = shared.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&shared))
        .map_err(|error| DeliveryError::Failed(format!("the system gives no thread: {error}")))
}
