//! The engine with its threads: the writer, the senders, and the teller, which calls the program's observer (rules D5,
//! D6).
//!
//! - Only one sender at a time waits for the timer, and the other senders wait for it. A due message therefore needs
//!   only one thread, from the timer's wake-up to the sink.
//! - A send that takes too long is cut off: its messages count as unanswered. Its thread keeps its place until the sink
//!   returns. Then the thread ends, and the answer is ignored. Another thread with another sink is opened, if a place
//!   is free: [`places`](crate::due::places).
//! - If a sink has spare places, there is always one thread more than sends, up to the number of places.
//! - A `ReplySink` has one thread for all messages: [`overlapping`].
//! - When the engine is closing, a sink gets no more messages if it was cut off, or if it is opened only then.

mod overlapping;
mod senders;
mod shared;
mod telling;
mod writing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::settings::Settings;
use crate::base::clock::{DueClock, SystemWallTime, WallTime};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::summary::Summary;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::due::places::PlaceLimits;
use crate::group::writer::Sends;
use crate::group::writer_queue::QueueState;
use crate::sinks::{OpenSink, Opened, TakesNamed};
use crate::store::Checkpoints;
use crate::store::file::owner::Ownership;
use crate::store::replica::Bases;
use tickwheel::Clock;

use senders::caught;
use shared::{ABORT, Shared, spawn};

/// The delivery of a store, until [`Running::close`].
pub struct Running {
    shared: Arc<Shared>,
    /// The writer and the teller, in this order, until they are joined.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    /// Opens the store and the destination, and starts the threads. No message is due before [`Running::start`].
    ///
    /// # Errors
    /// The store or the destination cannot be opened.
    pub fn open(
        ownership: Ownership,
        settings: Settings,
        open: OpenSink,
        threads: usize,
    ) -> Result<Self, DeliveryError> {
        let wall: Arc<dyn WallTime> = Arc::new(SystemWallTime);
        let observer = settings.observer.clone();
        // A suspend of the machine is then no step of the wall clock. Senders look at both clocks once a second, awake or not.
        let clock = Clock::boottime_us(0).unwrap_or_else(|_| Clock::monotonic(0));
        let mut engine = Engine::open(ownership, settings, clock, wall)?;
        engine.waits_for_room = true;
        let opened = open_sinks(&engine, &open, threads);
        if let Err(forked) = engine.check_process() {
            // The store belongs to the parent process. No part of it may run here.
            engine.forget_in_child();
            std::mem::forget((engine, opened));
            return Err(forked);
        }
        let sinks = opened?;
        let running = Self { shared: Arc::new(Shared::new(engine, open, observer)), threads: Mutex::default() };
        if let Err(error) = running.start_threads(sinks) {
            running.shared.fail(&error);
            let _ = running.close(Some(ABORT)); // the first failure is returned; all threads end, and the store is free
            return Err(error);
        }
        Ok(running)
    }

    fn start_threads(&self, sinks: Vec<Opened>) -> Result<(), DeliveryError> {
        let shared = &self.shared;
        let weak = Arc::downgrade(shared);
        let of_bases = weak.clone();
        let no_base = move |reason| {
            if let Some(shared) = of_bases.upgrade() {
                shared.tell(vec![Event::BaseFailed { reason }]);
            }
        };
        let failed = move |error: &StoreError| match weak.upgrade() {
            Some(shared) if error.passes() => {
                shared.tell(vec![Event::CheckpointFailed { reason: error.to_string() }]);
            }
            Some(shared) => shared.fail(&error.clone().into()),
            None => {}
        };
        shared.engine.with_writer(|writer| {
            #[cfg(feature = "http")]
            if writer.takes_named != TakesNamed::No
                && shared.engine.settings.proxy.is_none()
                && let Some(variable) = crate::sinks::Proxy::variable()
            {
                shared.tell(vec![Event::ProxyNotUsed { variable }]);
            }
            writer.checkpoints = Some(Checkpoints::start(&writer.store, Box::new(failed))?);
            if let Some((to, lease)) = shared.engine.chain() {
                writer.bases = Some(Bases::start(
                    writer.store.path(),
                    to,
                    lease,
                    shared.engine.settings.limits,
                    writer.store.guard(),
                    Box::new(no_base),
                )?);
            }
            Ok::<_, DeliveryError>(())
        })??;
        let mut threads = self.threads.lock();
        threads.push(spawn("writer-deliver", shared, Shared::write)?);
        threads.push(spawn("teller-deliver", shared, Shared::tell_all)?);
        drop(threads);
        sinks.into_iter().try_for_each(|sink| shared.add_sender(sink))
    }

    /// The engine, for questions and submits.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Starts the clock: from now on messages are due.
    pub fn start(&self, clock: DueClock) {
        self.shared.engine.start(clock);
    }

    /// The error that ended the run, if an error did.
    #[must_use]
    pub fn failure(&self) -> Option<DeliveryError> {
        self.shared.failure.lock().clone()
    }

    /// Ends the run with this error. No more messages are sent.
    pub fn fail(&self, error: &DeliveryError) {
        self.shared.fail(error);
    }

    /// Waits until no message is open, at most for this time. Returns whether this was reached.
    ///
    /// # Errors
    /// The error that ended the run.
    pub fn wait_until_empty(&self, timeout: Duration) -> Result<bool, DeliveryError> {
        let queue = &self.shared.engine.queue;
        let end = Instant::now().checked_add(timeout);
        let is_open = |state: &mut QueueState| state.failure.is_none() && !state.is_empty();
        let state = queue.emptied.wait_while(queue.lock(), end, is_open);
        state.failure.clone().map_or_else(|| Ok(state.is_empty()), Err)
    }

    /// Sends the messages that are due by now, commits, and stops. Later submits are refused. `timeout` limits how long
    /// the close waits for:
    ///
    /// - a sink that hangs in a send: its messages count as not delivered, and the next run sends them again;
    /// - a sink that hangs in its sync: the messages sent since the last commit are sent again;
    /// - an observer that hangs with dead letters: the next run gives it the letters again;
    /// - a disk that does not answer: the store is closed once the disk answers, and no more data is written.
    ///
    /// # Errors
    /// The error that ended the run, or a failure while it was closed.
    pub fn close(&self, timeout: Option<Duration>) -> Result<Summary, DeliveryError> {
        let shared = self.shared.clone();
        shared.engine.queue.ask_to_stop();
        shared.end_within(timeout);
        let all_ended = shared.stop_senders();
        shared.engine.queue.stop();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        let mut is_written = true;
        if !shared.wait_for(|telling| telling.has_ended) {
            threads.truncate(1); // the writer; the teller ends when its observer returns
            shared.leaves_letters.store(true, Ordering::SeqCst);
            shared.engine.queue.wake();
            is_written = shared.wait_for(|telling| telling.is_over);
            if !is_written {
                threads.clear(); // the writer ends when the sink's sync returns, and commits no more
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        let failure = shared.failure.lock().clone();
        let summary = shared.close_engine(match (is_written && failure.is_none(), all_ended) {
            (false, _) => Sends::Unknown,
            (true, false) => Sends::SomeHang,
            (true, true) => Sends::AllEnded,
        });
        match failure {
            Some(failure) => Err(failure),
            None => summary,
        }
    }
}

impl Running {
    /// Whether a sink is open and was not cut off. After [`Running::close`], such a sink hangs in its last call.
    pub fn has_open_sinks(&self) -> bool {
        !self.shared.lock_senders().working.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.is_closing.load(Ordering::SeqCst)
    }

    /// How many senders were cut off and have not ended.
    pub fn hanging_senders(&self) -> usize {
        self.shared.lock_senders().hanging
    }

    /// After [`Running::close`]: whether letters on disk were not given to the observer.
    pub fn left_letters(&self) -> bool {
        self.shared.engine.queue.lock().has_letters
    }

    /// Limits a running call of [`Running::close`] to this time from now on.
    pub fn hurry(&self, timeout: Duration) {
        self.shared.end_within(Some(timeout));
    }
}

/// The most calls that were cut off and have not returned, beside the places, if a sink has no spare places.
const MOST_HANGING: usize = 8;

/// Opens a sink for each thread, and asks the first sink which messages of an earlier process have arrived.
fn open_sinks(engine: &Engine, open: &OpenSink, threads: usize) -> Result<Vec<Opened>, DeliveryError> {
    let mut first = open(engine.store_id())?;
    engine.check_process()?;
    engine.recover(if let Opened::Sink(sink) = &mut first { Some(&mut **sink) } else { None })?;
    let named = if let Opened::ReplySink(sink) = &first {
        let Settings { allowed, final_statuses, proxy, .. } = &engine.settings;
        caught(|| Ok(sink.named(allowed, final_statuses, proxy.as_ref())))?
    } else {
        TakesNamed::No
    };
    let of_webhooks =
        [("final-status", !engine.settings.final_statuses.is_empty()), ("proxy", engine.settings.proxy.is_some())];
    if named == TakesNamed::No
        && let Some((name, _)) = of_webhooks.iter().find(|(_, is_given)| *is_given)
    {
        return Err(DeliveryError::Usage(format!("{name} is for webhooks, and this sends to none: leave it out")));
    }
    engine.take_named(named)?;
    let limits = caught(|| Ok(limits_of(&first, &engine.settings, threads)))?;
    engine.set_places(limits);
    let threads = if matches!(first, Opened::Sink(_)) { limits.young } else { 1 };
    let mut sinks = vec![first];
    while sinks.len() < threads {
        sinks.push(open(engine.store_id())?);
        engine.check_process()?;
    }
    Ok(sinks)
}

/// How many sends of this sink there may be at a time.
fn limits_of(sink: &Opened, settings: &Settings, threads: usize) -> PlaceLimits {
    let concurrency = settings.concurrency;
    let is_limited = concurrency != usize::MAX;
    let spare = |own| settings.spare.unwrap_or(if is_limited { 0 } else { own });
    match sink {
        Opened::Sink(sink) => {
            let usual = threads.max(sink.threads());
            let young = if is_limited { concurrency.min(sink.most_threads().max(usual)) } else { usual };
            let spare = if sink.is_alone() { 0 } else { spare(sink.spare()) };
            let hanging = if spare == 0 && !is_limited { MOST_HANGING } else { 0 };
            PlaceLimits { young, spare, young_bytes: usize::MAX, spare_bytes: usize::MAX, hanging }
        }
        Opened::ReplySink(sink) => PlaceLimits {
            young: sink.max_in_flight().max(1).min(concurrency),
            spare: spare(sink.spare()).min(third_of_open_files()),
            young_bytes: sink.max_bytes(),
            spare_bytes: PlaceLimits::SPARE_BYTES,
            hanging: 0,
        },
    }
}

fn third_of_open_files() -> usize {
    use rustix::process::{Resource, getrlimit};
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files / 3).unwrap_or(usize::MAX)
}

/// If it is dropped without a close, it sends no more. It frees the store once its threads have ended.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.shared.is_closing.store(true, Ordering::SeqCst);
            self.shared.fail(&DeliveryError::Closed);
        }
    }
}

#[cfg(test)]
mod tests;
