//! What another wheel would have done with the same traffic: recorded adds, moves and cancels, replayed in virtual time.
//!
//! A replay is the timer itself on a manual clock, with a reaper that wakes up at once and callbacks that take no time.
//! Between two events it sleeps, wakes and advances as the reaper's thread does, by the same code.
//!
//! At every microsecond a reaper that slept until then comes first, then the events, then a reaper that they woke. A
//! released task is claimed only when time goes on, so that a callback can cancel what is due at the same instant. The last
//! instant of a replay is processed to its end like any other.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::clock::{Clock, LIMIT_MS, LIMIT_US};
use crate::config::Config;
use crate::error::Error;
use crate::events::{Event, EventKind};
use crate::executor::Released;
use crate::lead::Wait;
use crate::state::{Due, Room};
use crate::stats::{Histogram, Stats};
use crate::timer::Timer;
use crate::wheel::{Handle, Ticket};
use crate::when::When;

/// How many events lie between two measurements of memory: one takes O(pages and buckets).
const LOOK_EVERY: u64 = 4096;

/// Replays the events of one timer on a wheel of its own.
///
/// ```
/// use tickwheel::{Config, Event, EventKind, Replay};
/// let added = |at_us, number, due_us| Event { at_us, number, due_us, other: 0, kind: EventKind::Added, level: 0 };
/// let mut replay = Replay::new(&Config::default())?;
/// replay.feed(&[added(0, 1, 30_000), added(0, 2, 90_000)])?;
/// let twice = replay.feed(&[added(0, 2, 90_000)]).unwrap_err(); // nothing of this call is applied
/// assert!(twice.to_string().starts_with("event 0: the number of an added task must be new"));
///
/// let replayed = replay.finish(100_000);
/// // The first add wakes the reaper; then a cascade at 20, the task at 30, a cascade at 80, the task at 90.
/// assert_eq!((replayed.stats.expired, replayed.stats.wake_ups), (2, 5));
/// # Ok::<(), tickwheel::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    config: Config,
    /// Made by the first event: it starts where that is.
    run: Option<Run>,
    unknown: u64,
    seen: u64,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The counters of the timer that was replayed.
    pub stats: Stats,
    /// Buckets that were flushed, by level.
    pub flushed: Vec<u64>,
    /// How long before their instant tasks were released, as (upper bound in microseconds, tasks).
    pub early_us: Vec<(u64, u64)>,
    /// The longest of these.
    pub max_early_us: u64,
    /// The most tasks that were pending together.
    pub peak_pending: usize,
    /// The most memory that wheel, entries, queue and front took, with 8 bytes for a task.
    pub peak_bytes: usize,
    /// Moves and cancels of tasks that the replay did not hold: they were added before the recording, or had expired by
    /// then.
    pub unknown: u64,
}

#[derive(Debug)]
struct Run {
    timer: Timer<u64>,
    /// Until when the reaper sleeps; `None` if only an event can wake it.
    until_us: Option<u64>,
    handles: HashMap<u64, Handle>,
    moved: u64,
    /// Released, and not yet claimed, and when that was.
    line: Vec<(Ticket, u64)>,
    flushed: Vec<u64>,
    early_us: Histogram,
    max_early_us: u64,
    peak_pending: usize,
    /// How many must be pending for the next look at memory.
    next_look: usize,
    peak_bytes: usize,
}

impl Replay {
    /// A replay on a wheel with these settings, without a bound of pending tasks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that are not allowed.
    pub fn new(config: &Config) -> Result<Self, Error> {
        config.check()?;
        Ok(Self { config: Config { max_pending: None, ..config.clone() }, run: None, unknown: 0, seen: 0 })
    }

    /// Applies some more events, in their order; all or nothing. O(levels) each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an instant out of range, and for the number of an added task that another task has: one that
    /// was added before this call and had not run when the call began, or one that was added earlier in this call. The text
    /// begins with the index of that event in `events`. No event of the call is applied then, and the replay can go on.
    pub fn feed(&mut self, events: &[Event]) -> Result<(), Error> {
        self.check(events)?;
        for event in events {
            let run = self.run.get_or_insert_with(|| Run::new(&self.config, event.at_us));
            if !run.replay(event) {
                self.unknown += 1;
            }
            self.seen += 1;
            if self.seen.is_multiple_of(LOOK_EVERY) {
                run.look();
            }
        }
        Ok(())
    }

    /// Whether all of these events can be applied.
    fn check(&self, events: &[Event]) -> Result<(), Error> {
        let start_us = events.first().map_or(0, |event| event.at_us);
        if self.run.is_none() && start_us >= LIMIT_US {
            return Err(Error::invalid(format!(
                "event 0: a recording must begin before {LIMIT_MS} ms (2^52), got {} ms: name another first event",
                start_us / 1000
            )));
        }
        let mut now_us = self.run.as_ref().map_or(0, |run| run.timer.clock().now_us());
        // The changes of this call, so far, in the numbers of tasks.
        let mut taken: HashMap<u64, bool> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            now_us = now_us.max(event.at_us);
            match event.kind {
                EventKind::Added => {}
                EventKind::Moved => _ = taken.insert(event.other, false),
                EventKind::Cancelled => {
                    taken.insert(event.number, false);
                    continue;
                }
                EventKind::Expired | EventKind::Cascaded | EventKind::Woke => continue,
            }
            let had_it = || self.run.as_ref().is_some_and(|run| run.handles.contains_key(&event.number));
            let due = Due::new(When::AtUs(event.due_us), (now_us, now_us));
            let error = if let Err(error) = due.check() {
                error
            } else if taken.insert(event.number, true).unwrap_or_else(had_it) {
                let number = event.number;
                Error::invalid(format!(
                    "the number of an added task must be new, got {number} twice: replay one recording at a time"
                ))
            } else {
                continue;
            };
            return Err(Error::invalid(format!("event {index}: {error}")));
        }
        Ok(())
    }

    /// Goes on to the end of the instant `until_us`, and returns the result of the replay.
    #[must_use]
    pub fn finish(self, until_us: u64) -> Replayed {
        let unknown = self.unknown;
        let Some(mut run) = self.run else { return Replayed { unknown, ..Replayed::default() } };
        run.go_on(until_us);
        run.end_instant();
        run.claim_line();
        run.look();
        Replayed {
            stats: run.stats(),
            flushed: run.flushed,
            early_us: run.early_us.classes(),
            max_early_us: run.max_early_us,
            peak_pending: run.peak_pending,
            peak_bytes: run.peak_bytes,
            unknown,
        }
    }
}

impl Run {
    /// What it is made from was checked.
    fn new(config: &Config, start_us: u64) -> Self {
        let timer = Timer::new(config, Clock::manual(start_us / 1000)).expect("settings and start are in range");
        timer.lock_state().schedule.wheel.flushed = Some(Vec::new());
        let mut run = Self {
            timer,
            until_us: None,
            handles: HashMap::new(),
            moved: 0,
            line: Vec::new(),
            flushed: Vec::new(),
            early_us: Histogram::default(),
            max_early_us: 0,
            peak_pending: 0,
            next_look: 1,
            peak_bytes: 0,
        };
        run.serve();
        run
    }

    /// Applies an event; `false` if its task does not exist.
    fn replay(&mut self, event: &Event) -> bool {
        self.go_on(event.at_us);
        match event.kind {
            EventKind::Added => {
                self.add(event);
                true
            }
            EventKind::Moved => self.move_to(event),
            EventKind::Cancelled => self.cancel(event.number),
            EventKind::Expired | EventKind::Cascaded | EventKind::Woke => true,
        }
    }

    fn add(&mut self, event: &Event) {
        let added = self.timer.add_with(When::AtUs(event.due_us), event.number, 0, Room::Always);
        let (handle, _) = added.expect("the instant was checked, and the timer has no bound");
        self.handles.insert(event.number, handle);
        let pending = self.timer.len();
        self.peak_pending = self.peak_pending.max(pending);
        if pending >= self.next_look {
            self.next_look = pending + pending / 64 + 1;
            self.look();
        }
    }

    /// For a timer a move is a removal and an add in one, and takes a new number. The same holds here, where numbers
    /// stand for tasks.
    fn move_to(&mut self, event: &Event) -> bool {
        let was_there = self.cancel(event.other);
        self.moved += u64::from(was_there);
        self.add(event);
        was_there
    }

    fn cancel(&mut self, number: u64) -> bool {
        let handle = self.handles.remove(&number);
        handle.is_some_and(|handle| self.timer.cancel(handle).is_some())
    }

    fn stats(&self) -> Stats {
        let stats = self.timer.stats();
        let (added, cancelled) = (stats.added - self.moved, stats.cancelled - self.moved);
        Stats { added, moved: self.moved, cancelled, ..stats }
    }

    /// Does what the reaper does up to this instant, and at it.
    fn go_on(&mut self, to_us: u64) {
        if to_us <= self.timer.clock().now_us() {
            return;
        }
        self.end_instant();
        while let Some(until_us) = self.until_us.filter(|until_us| *until_us <= to_us) {
            self.set_clock(until_us);
            self.wake();
        }
        self.set_clock(to_us);
    }

    /// Wakes the reaper if an event of this instant did.
    fn end_instant(&mut self) {
        let is_woken = {
            let mut state = self.timer.lock_state();
            // Drops emptied buckets, as a caller that steps a timer does at every step; the reaper's thread does when it
            // wakes.
            state.schedule.next_wake_us();
            state.lead.is_woken()
        };
        if is_woken {
            self.wake();
        }
    }

    fn set_clock(&mut self, now_us: u64) {
        if now_us > self.timer.clock().now_us() {
            self.claim_line();
            self.timer.clock().set_us(now_us);
        }
    }

    fn wake(&mut self) {
        self.timer.lock_state().note_wake_up(self.timer.clock());
        self.serve();
    }

    /// Advances until there is nothing to do, and goes to sleep.
    fn serve(&mut self) {
        loop {
            let now_us = self.timer.clock().now_us();
            let next = self.timer.lock_state().start_sleep(now_us, self.timer.slack(), u64::MAX);
            match next {
                ControlFlow::Break(Wait::Due) => {}
                ControlFlow::Continue(until_us) => {
                    return self.until_us = (until_us < u64::MAX).then_some(until_us);
                }
                ControlFlow::Break(_) => return self.until_us = None,
            }
            let line = &mut self.line;
            self.timer.advance(&mut |released: Released| {
                line.extend(released.tickets.into_iter().map(|ticket| (ticket, now_us)));
            });
            if let Some(flushed) = &mut self.timer.lock_state().schedule.wheel.flushed {
                for bucket in flushed.drain(..) {
                    let level = usize::from(bucket.level);
                    self.flushed.resize(self.flushed.len().max(level), 0);
                    self.flushed[level - 1] += 1;
                }
            }
        }
    }

    /// Takes what was released, as the executor does; what was cancelled meanwhile is gone.
    fn claim_line(&mut self) {
        for (ticket, released_us) in self.line.drain(..) {
            let Some(claimed) = self.timer.claim(ticket) else { continue };
            self.handles.remove(&claimed.task);
            let early_us = claimed.due_us.saturating_sub(released_us);
            self.early_us.record(early_us);
            self.max_early_us = self.max_early_us.max(early_us);
        }
    }

    fn look(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.timer.lock_state().schedule.bytes());
    }
}
