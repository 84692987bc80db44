//! The writer's thread: it writes one group after another, and cuts off sends that hang (rules D5, D6).

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::senders::caught;
use super::shared::{LAST_SENDS, LOOK_AT_CLOCK_US, Shared};
use crate::base::error::{DeliveryError, StoreError};
use crate::due::dispatcher::Event;
use crate::sinks::SyncFn;
use crate::store::file::owner::process_that_writes;
use crate::store::replica::BEAT_EVERY_MS;

/// How often it is tried whether the store can be written again.
const TRY_STORE_EVERY: Duration = Duration::from_millis(200);
/// How often the writer checks the current sends, if no sender watches the timer.
const LOOK_AT_SENDS_US: u64 = 100_000;

impl Shared {
    pub(super) fn write(self: &Arc<Self>) {
        let written = catch_unwind(AssertUnwindSafe(|| self.write_until_over()));
        if self.is_forked() {
            return;
        }
        if written.is_err() {
            let failure = self.engine.writer_panicked();
            self.fail(&failure);
            self.engine.give_up(&failure);
        }
        let mut telling = self.telling.lock();
        telling.is_over = true;
        self.to_tell.notify_all();
    }

    fn write_until_over(self: &Arc<Self>) {
        let load_every_us = (self.engine.settings.horizon_ms * 1000 / 4).max(1_000);
        let beat_every_us =
            if self.engine.settings.replicate.is_some() { BEAT_EVERY_MS as u64 * 1000 } else { u64::MAX };
        let load_every_us = load_every_us.min(beat_every_us);
        loop {
            let is_stopping = self.wait_for_work(load_every_us);
            let failure = self.engine.queue.lock().failure.clone();
            if let Some(failure) = failure {
                self.write_the_rest(&failure);
                break;
            }
            if is_stopping {
                let _ = self.engine.with_writer(|writer| writer.loader.stop());
            }
            let written = match self.engine.write(&|| self.sync()) {
                Err(DeliveryError::StoreWaits(error)) => self.wait_for_store(&error),
                written => written.map(drop),
            };
            if let Err(error) = written {
                self.fail(&error);
                break;
            }
            self.wake_after_commit();
            let leaves_letters = self.leaves_letters.load(Ordering::SeqCst);
            if is_stopping && self.is_written(leaves_letters) {
                break;
            }
        }
    }

    /// A group could not be written (D6). Once the sends in flight have ended, the store is opened anew; this is repeated
    /// until it can be written, or the engine is closing.
    ///
    /// # Errors
    /// The run ends: the reason does not pass, or the engine is closing.
    fn wait_for_store(self: &Arc<Self>, error: &StoreError) -> Result<(), DeliveryError> {
        let began = Instant::now();
        let mut reason = DeliveryError::StoreWaits(error.clone()).to_string();
        if let Some(pid) = process_that_writes(error.path()) {
            let _ = write!(reason, "; process {pid} holds a lock on it");
        }
        self.tell(vec![Event::StoreWaits { reason }]);
        let (mut tried_at, mut took) = (Instant::now(), Duration::ZERO);
        loop {
            let is_stopping = {
                let mut state = self.engine.queue.lock();
                if !state.is_stopping && state.failure.is_none() {
                    state = self.engine.queue.work.wait_timeout(state, TRY_STORE_EVERY);
                }
                if let Some(failure) = &state.failure {
                    return Err(failure.clone());
                }
                state.is_stopping
            };
            self.cut_off_sends();
            let is_time = tried_at.elapsed() >= TRY_STORE_EVERY.max(4 * took);
            match (is_stopping, self.engine.lock_dispatcher().has_flights()) {
                (true, true) => return Err(DeliveryError::Store(error.clone())), // a close has waited for them
                (false, true) => continue,
                (false, false) if !is_time => continue,
                (_, false) => {}
            }
            tried_at = Instant::now();
            match self.engine.open_anew(&|| self.sync()) {
                Err(DeliveryError::StoreWaits(_)) if !is_stopping => {}
                Err(DeliveryError::StoreWaits(error)) => return Err(DeliveryError::Store(error)),
                ended => {
                    ended?;
                    let after_ms = began.elapsed().as_millis() as u64;
                    self.tell(vec![Event::StoreGoesOn { after_ms }]);
                    return Ok(());
                }
            }
            took = tried_at.elapsed();
            tried_at = Instant::now();
        }
    }

    pub(super) fn is_written(&self, leaves_letters: bool) -> bool {
        let queue = &self.engine.queue;
        self.engine.with_writer(|writer| writer.is_finished(queue, leaves_letters)).unwrap_or(true)
    }

    /// Waits until there is a group to write, or it is time to load the next messages. Returns whether the engine is
    /// closing.
    pub(super) fn wait_for_work(self: &Arc<Self>, load_every_us: u64) -> bool {
        let load_at_us = self.engine.clock().now_us() + load_every_us;
        loop {
            {
                let state = self.engine.queue.lock();
                let now_us = self.engine.clock().now_us();
                let idle_us = state.idle_us(now_us, load_at_us.saturating_sub(now_us), self.engine.wall_us());
                if idle_us == 0 {
                    return state.is_stopping;
                }
                // A leader wakes up once a second itself. It may be the next sender that hangs.
                let is_led = self.has_leader.load(Ordering::Relaxed);
                let most_us = if is_led { LOOK_AT_CLOCK_US } else { LOOK_AT_SENDS_US };
                drop(self.engine.queue.work.wait_timeout(state, Duration::from_micros(idle_us.min(most_us))));
            }
            self.cut_off_sends();
        }
    }

    /// Cuts off sends that hang, if no sender watches the timer because each one has a send.
    pub(super) fn cut_off_sends(self: &Arc<Self>) {
        self.add_senders(); // if the system gave no thread before
        if self.has_leader.load(Ordering::Relaxed) {
            return;
        }
        let mut dispatcher = self.engine.lock_dispatcher();
        dispatcher.advance();
        self.engine.flush(&mut dispatcher);
        if std::mem::take(&mut dispatcher.wants_load) {
            self.engine.queue.wake();
        }
        // A sink that answers later has to be told of each send that is cut off, by its own thread.
        if !self.lock_senders().answers_later {
            self.hear_events(&mut dispatcher);
        }
        self.pass_on(&mut dispatcher);
        drop(dispatcher);
        self.add_senders();
    }

    /// The run has failed. Unless the store failed, the earlier deliveries are committed at once. Sends in flight get
    /// some time to end, and are committed then. So the next run does not repeat them.
    pub(super) fn write_the_rest(&self, failure: &DeliveryError) {
        let is_usable = !matches!(failure, DeliveryError::Store(_));
        let is_usable = is_usable && self.engine.write(&|| self.sync()).is_ok(); // the first failure is returned
        self.engine.give_up(failure); // first: a send in flight may wait for its own ticket
        if is_usable {
            self.wait_for_senders(LAST_SENDS);
            let _ = self.engine.write(&|| self.sync());
        }
    }

    /// After a commit, the timer may have a message that is due before all others, and sending may go on after a pause.
    pub(super) fn wake_after_commit(&self) {
        {
            let mut dispatcher = self.engine.lock_dispatcher();
            if dispatcher.has_ready() || self.leader_sleeps_too_long() {
                self.leader.notify_one();
            }
        }
        self.wake_teller();
    }

    pub(super) fn sync(&self) -> Result<(), DeliveryError> {
        let syncs: Vec<SyncFn> = {
            let senders = self.lock_senders();
            senders.syncs.iter().map(|(_, sync)| sync.clone()).collect()
        };
        for sync in &syncs {
            self.telling.lock().syncing_since = Some(Instant::now());
            self.to_tell.notify_all(); // the teller watches how long it takes
            let synced = caught(|| sync());
            if self.is_forked() {
                resume_unwind(Box::new("forked")); // leaves the group unfinished: any lock may be held for ever
            }
            self.telling.lock().syncing_since = None;
            synced?;
        }
        Ok(())
    }
}
