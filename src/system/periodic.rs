//! A periodic task: one callback that is put back on the timer after each call.
//!
//! A series is `Waiting` for its next call, `Running`, or `Ended`. The lock of that state orders a call and a cancel: a call
//! that finds the series ended does nothing. So no call begins after `cancel` has returned. Order: it is taken before the
//! timer's locks.

use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use super::callbacks::{Callback, PeriodicCallback};
use crate::error::AddError;
use crate::every::{Every, Occurrences};
use crate::panics;
use crate::state::Room;
use crate::sync::PlainMutex;
use crate::timer::Timer;
use crate::wheel::Handle;
use crate::when::When;

/// A periodic task, from [`SystemTimer::every`](crate::SystemTimer::every). Dropping it changes nothing: the calls go on.
///
/// They end with [`cancel`](PeriodicTask::cancel) and with the timer's shutdown, which returns the call that is pending. When
/// the timer is dropped, the call that is pending then is still made, and no other.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Config, SystemTimer};
/// # let timer = SystemTimer::new("demo", &Config::default())?;
/// let heart = timer.every(Duration::from_secs(1), || println!("beat"))?;
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
        let phase = mem::replace(&mut *self.series.phase.lock(), Phase::Ended);
        // The callback is dropped without the lock: its destructor is foreign code.
        match phase {
            Phase::Waiting { handle, .. } => {
                let timer = self.series.timer.upgrade();
                drop(timer.and_then(|timer| timer.cancel(handle)));
                true
            }
            Phase::Running => true,
            Phase::Ended => false,
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
    occurrences: Occurrences,
    phase: PlainMutex<Phase>,
}

enum Phase {
    /// The next call is on the timer, or on its way from there.
    Waiting { callback: PeriodicCallback, handle: Handle },
    /// A call has the callback, or the first one is about to be scheduled.
    Running,
    /// It was cancelled, or its next call was dropped: the timer takes no more tasks, or has dropped those it had.
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
    let now = timer.clock().now_down_and_up_us();
    let occurrences = match Occurrences::new(every, now) {
        Ok(occurrences) => occurrences,
        Err(error) => return Err(AddError::new(error, callback)),
    };
    let first = occurrences.first_from(now.0);
    let phase = PlainMutex::new(Phase::Running);
    let series = Arc::new(Series { timer: Arc::downgrade(timer), occurrences, phase });
    series.schedule(timer, first, callback, Room::IfAny)?;
    Ok(PeriodicTask { series })
}

impl Series {
    /// Puts a call on the timer, unless the series has ended meanwhile.
    fn schedule(
        self: &Arc<Self>,
        timer: &Timer<Callback>,
        number: u64,
        callback: PeriodicCallback,
        room: Room,
    ) -> Result<(), AddError<PeriodicCallback>> {
        let when = When::AtUs(self.occurrences.due_us(number));
        let call = Call { series: Some(Arc::clone(self)), number };
        // Locked until the callback is in its place: however soon the call comes, it finds it.
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Running) {
            drop(phase); // before the call and the callback, whose destructors take the lock or are foreign code
            return Ok(());
        }
        match timer.add_with(when, Box::new(move || call.make()), 0, room) {
            Ok((handle, _)) => {
                *phase = Phase::Waiting { callback, handle };
                Ok(())
            }
            Err(refused) => {
                *phase = Phase::Ended;
                drop(phase);
                Err(AddError::new(refused.into(), callback))
            }
        }
    }

    fn call(self: &Arc<Self>, number: u64) {
        let Some(mut callback) = self.take_callback() else { return };
        panics::contain(&mut callback); // it costs this call, not the series
        let timer = self.timer.upgrade().filter(|timer| !timer.closes_when_empty());
        let Some(timer) = timer else { return self.end() };
        let next = self.occurrences.after(number, timer.clock().now_us());
        // Refused by a timer that has closed: that ends the series.
        drop(self.schedule(&timer, next, callback, Room::Always));
    }

    fn take_callback(&self) -> Option<PeriodicCallback> {
        let mut phase = self.phase.lock();
        match mem::replace(&mut *phase, Phase::Running) {
            Phase::Waiting { callback, .. } => Some(callback),
            Phase::Running => None,
            Phase::Ended => {
                *phase = Phase::Ended;
                None
            }
        }
    }

    fn end(&self) {
        let phase = mem::replace(&mut *self.phase.lock(), Phase::Ended);
        drop(phase); // without the lock: the callback's destructor is foreign code
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
            series.end();
        }
    }
}
