//! The engine with threads of its own: the writer, the senders, and what the program is told (rules D5, D6).
//!
//! - One sender at a time waits for the timer; the others wait for it. So a message that is due goes from the timer's wake-up
//!   to the sink in one thread.
//! - A send that takes too long is cut off: its messages count as unanswered, and a fresh thread with a fresh sink takes the
//!   place of the one that hangs, which ends when its sink returns, and whose answer is not heard. At most
//!   [`MOST_HANGING`](shared::MOST_HANGING) are replaced; then one that hangs is not, until another returns.
//! - A sink that answers each message later has one thread for all of them: [`overlapping`].
//! - Once the engine is closing, a sink that was cut off, or that is opened only now, gets nothing to send.

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
use crate::group::items::{Item, Receipt};
use crate::sinks::{OpenSink, Sink};
use crate::store::Checkpoints;
use crate::store::file::owner::Ownership;
use tickwheel::Clock;

pub use shared::Observer;

use shared::{ABORT, LOOK_AT_CLOCK, Shared, spawn};

/// A store that is being delivered, until [`Running::close`].
pub struct Running {
    shared: Arc<Shared>,
    /// The writer and the teller, in this order, until they are joined.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    /// Opens the store and the destination, and starts the threads. Nothing is due before [`Running::start`].
    ///
    /// # Errors
    /// The store or the destination cannot be opened.
    pub fn open(
        ownership: Ownership,
        settings: Settings,
        open: OpenSink,
        threads: usize,
        observer: Box<dyn Observer>,
    ) -> Result<Self, DeliveryError> {
        let wall: Arc<dyn WallTime> = Arc::new(SystemWallTime);
        let mut engine = Engine::open(ownership, settings, Clock::monotonic(0), wall)?;
        engine.waits_for_room = true;
        let opened = open_sinks(&engine, &open, threads);
        if let Err(forked) = engine.check_process() {
            // The store is the parent's, and nothing of it may run here.
            engine.forget_in_child();
            std::mem::forget((engine, opened));
            return Err(forked);
        }
        let sinks = opened?;
        let running = Self { shared: Arc::new(Shared::new(engine, open, observer)), threads: Mutex::default() };
        if let Err(error) = running.start_threads(sinks) {
            running.shared.fail(&error);
            let _ = running.close(Some(ABORT)); // the first failure counts; what was started ends, and the store is free
            return Err(error);
        }
        Ok(running)
    }

    fn start_threads(&self, sinks: Vec<Box<dyn Sink>>) -> Result<(), DeliveryError> {
        let shared = &self.shared;
        let weak = Arc::downgrade(shared);
        let failed = move |error: &StoreError| {
            if let Some(shared) = weak.upgrade() {
                shared.tell(vec![Event::CheckpointFailed { reason: error.to_string() }]);
            }
        };
        shared.engine.try_writer(|writer| {
            writer.checkpoints = Some(Checkpoints::start(&writer.store, Box::new(failed))?);
            Ok::<_, StoreError>(())
        })?;
        let mut threads = self.threads.lock();
        threads.push(spawn("writer-deliver", shared, Shared::write)?);
        threads.push(spawn("teller-deliver", shared, Shared::tell_all)?);
        drop(threads);
        sinks.into_iter().try_for_each(|sink| shared.add_sender(sink))
    }

    /// The engine, for what can be asked of it and submitted to it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// From now on messages are due.
    pub fn start(&self, clock: DueClock) {
        self.shared.engine.start(clock);
    }

    /// As [`Engine::submit`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn submit(&self, items: Vec<Item>) -> Result<Receipt, DeliveryError> {
        self.shared.engine.submit(items)
    }

    /// What ended the run, if anything did.
    #[must_use]
    pub fn failure(&self) -> Option<DeliveryError> {
        self.shared.failure.lock().clone()
    }

    /// Ends the run with this error: nothing more is sent.
    pub fn fail(&self, error: &DeliveryError) {
        self.shared.fail(error);
    }

    /// Whether nothing waits any more, within that time.
    ///
    /// # Errors
    /// What ended the run.
    pub fn wait_until_empty(&self, timeout: Duration) -> Result<bool, DeliveryError> {
        let queue = &self.shared.engine.queue;
        let end = Instant::now().checked_add(timeout);
        let mut state = queue.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_empty() {
                return Ok(true);
            }
            let left = end.map_or(LOOK_AT_CLOCK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            state = queue.wait_until_emptied(state, left);
        }
    }

    /// Sends the messages that are due by now, commits, and stops. Later submits are refused. The close waits until `timeout` for:
    ///
    /// - a sink that hangs in a send: its messages count as not delivered, and are sent again by the next run;
    /// - a sink that hangs in its sync: the messages sent since the last commit are sent again;
    /// - an observer that hangs with dead letters: the next run gives it the letters again;
    /// - a disk that does not answer: the store is closed once the disk answers, and nothing more is written.
    ///
    /// # Errors
    /// What ended the run, or a failure at the end of it.
    pub fn close(&self, timeout: Option<Duration>) -> Result<Summary, DeliveryError> {
        let shared = self.shared.clone();
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
                threads.clear(); // it ends when the sink's sync returns, and commits nothing more
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        let failure = shared.failure.lock().clone();
        let summary = shared.close_engine(all_ended && is_written && failure.is_none());
        match failure {
            Some(failure) => Err(failure),
            None => summary,
        }
    }
}

impl Running {
    /// Whether a sink is open that was not cut off; after [`Running::close`], one that hangs in its last call.
    pub fn has_open_sinks(&self) -> bool {
        !self.shared.lock_senders().working.is_empty()
    }

    /// Senders that were cut off and have not ended.
    pub fn hanging_senders(&self) -> usize {
        self.shared.lock_senders().hanging
    }

    /// After [`Running::close`]: whether letters were left that are on disk and were not told.
    pub fn left_letters(&self) -> bool {
        self.shared.engine.queue.lock().has_letters
    }

    /// A call of [`Running::close`] waits for that time at most from now on.
    pub fn hurry(&self, timeout: Duration) {
        self.shared.end_within(Some(timeout));
    }
}

/// Opens as many sinks as there are to be threads, and asks the first one what it has of an earlier process.
fn open_sinks(engine: &Engine, open: &OpenSink, threads: usize) -> Result<Vec<Box<dyn Sink>>, DeliveryError> {
    let mut first = open(engine.store_id())?;
    engine.check_process()?;
    engine.recover(&mut *first)?;
    let threads = if first.overlap() > 1 { 1 } else { threads.max(first.threads()).min(engine.settings.concurrency) };
    let mut sinks = vec![first];
    while sinks.len() < threads {
        sinks.push(open(engine.store_id())?);
        engine.check_process()?;
    }
    Ok(sinks)
}

/// One that is not closed sends nothing more, and gives its store up once its threads have ended.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.shared.is_closing.store(true, Ordering::SeqCst);
            self.shared.fail(&DeliveryError::Closed);
        }
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod pacing;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod tests;
