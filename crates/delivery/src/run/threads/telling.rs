//! The thread that gives dead letters and events to the program (rules D2, D15).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::senders::own_fault_caught;
use super::shared::{ABORT, SLOW_SYNC, Shared, Telling, spawn};
use crate::base::error::DeliveryError;
use crate::base::summary::Summary;
use crate::due::dispatcher::Event;
use crate::group::writer::Sends;

const OBSERVER_PANICKED: &str = "what is told of dead letters panicked: see the output of the panic hook";

impl Shared {
    pub(super) fn tell(&self, events: Vec<Event>) {
        {
            let mut telling = self.telling.lock();
            for event in events {
                telling.events.add(event);
            }
        }
        self.wake_teller();
    }

    pub(super) fn wake_teller(&self) {
        self.telling.lock().is_woken = true;
        self.to_tell.notify_all();
    }

    /// Waits for the end of a thread. Returns whether it ended in time. Waits at least for [`ABORT`], even if the time
    /// is over.
    pub(super) fn wait_for(&self, has_ended: impl Fn(&Telling) -> bool) -> bool {
        let soon = Instant::now() + ABORT;
        let mut telling = self.telling.lock();
        while !has_ended(&telling) {
            let at_least = soon.saturating_duration_since(Instant::now());
            telling = match self.left().map(|left| left.max(at_least)) {
                None => self.to_tell.wait(telling),
                Some(Duration::ZERO) => return false,
                Some(left) => self.to_tell.wait_timeout(telling, left),
            };
        }
        true
    }

    /// Closes the engine in a separate thread, because its disk may hang. Returns the summary, if the close was in
    /// time.
    ///
    /// # Errors
    /// The store failed, or its disk does not answer. The thread closes the store once the disk answers.
    pub(super) fn close_engine(self: &Arc<Self>, sends: Sends) -> Result<Summary, DeliveryError> {
        let closer = spawn("closer-deliver", self, move |shared| {
            let closed = own_fault_caught(|| shared.engine.close(sends));
            shared.telling.lock().closed = Some(closed);
            shared.to_tell.notify_all();
        });
        let Ok(closer) = closer else { return self.engine.close(sends) };
        if !self.wait_for(|telling| telling.closed.is_some()) {
            return Err(self.engine.leave_hanging_disk());
        }
        let _ = closer.join();
        self.telling.lock().closed.take().unwrap_or_else(|| self.engine.close(sends))
    }

    pub(super) fn tell_all(self: &Arc<Self>) {
        self.tell_until_over();
        if self.is_forked() {
            return;
        }
        self.telling.lock().has_ended = true;
        self.to_tell.notify_all();
    }

    pub(super) fn tell_until_over(&self) {
        loop {
            let (events, is_over) = {
                let mut telling = self.telling.lock();
                while !telling.is_woken && !telling.is_over {
                    telling = match telling.slow_sync_in() {
                        None => self.to_tell.wait(telling),
                        Some(Duration::ZERO) => {
                            telling.syncing_since = None; // it is told once
                            telling.events.add(Event::SlowSync { after_s: SLOW_SYNC.as_secs() });
                            break;
                        }
                        Some(left) => self.to_tell.wait_timeout(telling, left),
                    };
                }
                telling.is_woken = false;
                (telling.events.take(), telling.is_over)
            };
            if self.engine.queue.budget.was_freed() {
                self.observer.memory_is_free();
            }
            if !events.is_empty() {
                // The panic hook has reported it, and events are only for the log.
                let _ = catch_unwind(AssertUnwindSafe(|| self.observer.events(events)));
            }
            if self.is_forked() {
                return;
            }
            if let Some((letters, through)) = self.engine.queue.take_letters() {
                let told = catch_unwind(AssertUnwindSafe(|| self.observer.letters(&letters)));
                if self.is_forked() {
                    return;
                }
                match told.unwrap_or_else(|_| Err(DeliveryError::Failed(OBSERVER_PANICKED.to_owned()))) {
                    Ok(()) => self.engine.queue.letters_taken(through),
                    Err(error) => self.fail(&error),
                }
            } else if is_over {
                return;
            }
        }
    }
}
