//! A periodic task: one callback that is put back on the timer after each call.
//!
//! A series is `Waiting` for its next call, `Running`, `Paused`, or `Ended`. The lock of that state orders a call, a cancel and a
//! pause: a call that does not find the series waiting for it does nothing. So no call begins after `cancel` or `pause` has
//! returned. Order: it is taken before the timer's locks.

use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use super::callbacks::{Callback, PeriodicCallback};
use crate::error::AddError;
use crate::every::{Every, Occurrences};
use crate::panics;
use crate::state::Room;
use crate::sync::{PlainGuard, PlainMutex};
use crate::timer::Timer;
use crate::wheel::Handle;
use crate::when::When;

/// A periodic task, from [`SystemTimer::every`](crate::SystemTimer::every). Dropping it changes nothing: the calls go on.
///
/// They end with [`cancel`](PeriodicTask::cancel) and with the timer's shutdown, which returns the call that is pending. When
/// the timer is dropped, the call that is pending then is still made, and no other. A paused series has no pending call, and so
/// does not keep a dropped timer alive.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Config, SystemTimer};
/// # let timer = SystemTimer::new("demo", &Config::default())?;
/// let heart = timer.every(Duration::from_secs(1), || println!("beat"))?;
/// assert!(heart.pause() && timer.is_empty());
/// assert!(heart.resume() && timer.len() == 1);
/// assert!(heart.cancel());
/// assert!(!heart.cancel());
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub struct PeriodicTask {
    series: Arc<Series>,
}

impl PeriodicTask {
    /// Ends the series; `true` for the first cancel of a series that goes on. No call begins after it; a running call
    /// goes on to its end. O(1).
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn cancel(&self) -> bool {
        let phase = mem::replace(&mut self.series.progress.lock().phase, Phase::Ended);
        // The callback is dropped without the lock: its destructor is foreign code.
        match phase {
            Phase::Waiting { handle, .. } => {
                self.series.take_off(handle);
                true
            }
            Phase::Running { .. } | Phase::Paused { .. } => true,
            Phase::Ended => false,
        }
    }

    /// Stops the calls until [`resume`](PeriodicTask::resume); `true` if the series went on. No call begins after it; a running
    /// call goes on to its end. O(1).
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn pause(&self) -> bool {
        let mut progress = self.series.progress.lock();
        match mem::replace(&mut progress.phase, Phase::Ended) {
            Phase::Waiting { callback, handle } => {
                progress.phase = Phase::Paused { callback };
                drop(progress);
                self.series.take_off(handle);
                true
            }
            Phase::Running { is_paused } => {
                progress.phase = Phase::Running { is_paused: true };
                !is_paused
            }
            stays => {
                progress.phase = stays;
                false
            }
        }
    }

    /// Ends a pause; `true` if there was one, and calls come again. They come at the instants from now on, or in a gap from now:
    /// those that were due during the pause are left out. `false` also if no call is left, or the timer is closed: then the series
    /// ends. `max_pending` refuses none. O(levels).
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn resume(&self) -> bool {
        let mut progress = self.series.progress.lock();
        match mem::replace(&mut progress.phase, Phase::Running { is_paused: false }) {
            Phase::Paused { callback } => {
                let Some(timer) = self.series.timer.upgrade() else {
                    progress.phase = Phase::Ended;
                    drop(progress); // before the callback, whose destructor is foreign code
                    return false;
                };
                progress.occurrences.resume(timer.clock().now_down_and_up_us());
                matches!(self.series.schedule(progress, &timer, callback, Room::Always), Ok(true))
            }
            Phase::Running { is_paused } => is_paused,
            stays => {
                progress.phase = stays;
                false
            }
        }
    }
}

impl fmt::Debug for PeriodicTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeriodicTask").finish_non_exhaustive()
    }
}

struct Series {
    timer: Weak<Timer<Callback>>,
    progress: PlainMutex<Progress>,
}

struct Progress {
    phase: Phase,
    occurrences: Occurrences,
    /// How many calls were put on the timer. One that a pause took off too late finds another number.
    number: u64,
}

enum Phase {
    /// The call with the last number is on the timer, or on its way from there.
    Waiting {
        callback: PeriodicCallback,
        handle: Handle,
    },
    /// A call has the callback, or the first one is about to be scheduled. No other comes after it if `is_paused`.
    Running {
        is_paused: bool,
    },
    Paused {
        callback: PeriodicCallback,
    },
    /// It was cancelled, had its last call, or its next call was dropped: the timer takes no more tasks, or has dropped those it
    /// had.
    Ended,
}

/// One call of a series, as the timer has it. If it is dropped and not made, the series ends.
struct Call {
    series: Option<Arc<Series>>,
    number: u64,
}

/// Puts the first call on the timer.
pub(super) fn start(
    timer: &Arc<Timer<Callback>>,
    every: &Every,
    callback: PeriodicCallback,
) -> Result<PeriodicTask, AddError<PeriodicCallback>> {
    let occurrences = match Occurrences::new(every, timer.clock().now_down_and_up_us()) {
        Ok(occurrences) => occurrences,
        Err(error) => return Err(AddError::new(error, callback)),
    };
    let progress = PlainMutex::new(Progress { phase: Phase::Running { is_paused: false }, occurrences, number: 0 });
    let series = Arc::new(Series { timer: Arc::downgrade(timer), progress });
    series.schedule(series.progress.lock(), timer, callback, Room::IfAny)?;
    Ok(PeriodicTask { series })
}

impl Series {
    /// Puts the next call on the timer, unless the series was paused or has ended. Returns whether there is one.
    fn schedule(
        self: &Arc<Self>,
        // Locked until the callback is in its place: however soon the call comes, it finds it.
        mut progress: PlainGuard<'_, Progress>,
        timer: &Timer<Callback>,
        callback: PeriodicCallback,
        room: Room,
    ) -> Result<bool, AddError<PeriodicCallback>> {
        let due_us = match (&progress.phase, progress.occurrences.due_us()) {
            (Phase::Running { is_paused: false }, Some(due_us)) => due_us,
            (Phase::Running { is_paused: true }, Some(_)) => {
                progress.phase = Phase::Paused { callback };
                return Ok(false);
            }
            _ => {
                progress.phase = Phase::Ended;
                drop(progress); // before the callback, whose destructor is foreign code
                return Ok(false);
            }
        };
        progress.number += 1;
        let call = Call { series: Some(Arc::clone(self)), number: progress.number };
        match timer.add_with(When::AtUs(due_us), Box::new(move || call.make()), 0, room) {
            Ok((handle, _)) => {
                progress.phase = Phase::Waiting { callback, handle };
                Ok(true)
            }
            Err(refused) => {
                progress.phase = Phase::Ended;
                drop(progress);
                Err(AddError::new(refused.into(), callback))
            }
        }
    }

    fn call(self: &Arc<Self>, number: u64) {
        let Some(mut callback) = self.take_callback(number, Phase::Running { is_paused: false }) else { return };
        panics::contain(&mut callback); // it costs this call, not the series
        let timer = self.timer.upgrade().filter(|timer| !timer.closes_when_empty());
        let mut progress = self.progress.lock();
        let Some(timer) = timer else {
            progress.phase = Phase::Ended;
            drop(progress); // before the callback
            return;
        };
        progress.occurrences.end_call(timer.clock().now_down_and_up_us());
        // Refused by a timer that has closed: that ends the series.
        drop(self.schedule(progress, &timer, callback, Room::Always));
    }

    /// Takes the callback for the call with this number; `None` if the series does not wait for that.
    fn take_callback(&self, number: u64, then: Phase) -> Option<PeriodicCallback> {
        let mut progress = self.progress.lock();
        if progress.number != number || !matches!(progress.phase, Phase::Waiting { .. }) {
            return None;
        }
        match mem::replace(&mut progress.phase, then) {
            Phase::Waiting { callback, .. } => Some(callback),
            _ => None,
        }
    }

    fn take_off(&self, handle: Handle) {
        let timer = self.timer.upgrade();
        drop(timer.and_then(|timer| timer.cancel(handle)));
    }
}

impl Call {
    fn make(mut self) {
        if let Some(series) = self.series.take() {
            series.call(self.number);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(series) = self.series.take() {
            drop(series.take_callback(self.number, Phase::Ended)); // without the lock: its destructor is foreign code
        }
    }
}

#[cfg(all(test, not(any(tickwheel_model, tickwheel_loom))))]
mod tests;
