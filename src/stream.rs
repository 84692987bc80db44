//! What comes due as a `Stream`, for programs with an async runtime (the feature `stream`).

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::executor::{Executor, Released};
use crate::sync::PlainMutex;
use crate::timer::Timer;
use crate::wheel::Ticket;

impl<T> Timer<T> {
    /// Two ends: an executor for the thread that drives the timer, and a stream of the tasks that come due, in order.
    ///
    /// The stream belongs to any async runtime. A task can be cancelled until the stream yields it; then it counts as
    /// run, so [`Timer::wait_idle`] does not wait for your work. The stream ends when the executor is dropped, after the
    /// tasks that it was given; [`Timer::close`] ends the drive, and not yet the stream.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// use futures_util::StreamExt;
    /// use tickwheel::{Clock, Config, Error, Timer};
    ///
    /// async fn print_what_is_due() -> Result<(), Error> {
    ///     let timer = Arc::new(Timer::new(&Config::default(), Clock::monotonic(0))?);
    ///     let (mut executor, mut due) = timer.stream();
    ///     let driver = Arc::clone(&timer);
    ///     thread::spawn(move || driver.drive(&mut executor));
    ///
    ///     timer.add(Duration::from_secs(2), "two")?;
    ///     timer.add(Duration::from_secs(1), "one")?;
    ///     timer.close_when_empty();
    ///     while let Some(task) = due.next().await {
    ///         println!("{task} is due");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn stream(self: &Arc<Self>) -> (DueExecutor, DueStream<T>) {
        let shared = Arc::new(PlainMutex::new(Shared::default()));
        (DueExecutor { shared: Arc::clone(&shared) }, DueStream { timer: Arc::clone(self), shared })
    }
}

#[derive(Default)]
struct Shared {
    released: VecDeque<Ticket>,
    /// Of the task that waits for the stream.
    waker: Option<Waker>,
    /// One of the two ends was dropped.
    has_ended: bool,
}

impl Shared {
    /// Changes it, and wakes the stream after the lock, as a waker is foreign code.
    fn change(this: &PlainMutex<Self>, change: impl FnOnce(&mut Self)) {
        let mut shared = this.lock();
        change(&mut shared);
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The end of a [stream](Timer::stream) that [`Timer::drive`] or [`Timer::advance`] takes.
pub struct DueExecutor {
    shared: Arc<PlainMutex<Shared>>,
}

impl Executor for DueExecutor {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        let mut refused = None;
        Shared::change(&self.shared, |shared| {
            if shared.has_ended {
                refused = Some(released);
            } else {
                shared.released.extend(released.tickets);
            }
        });
        refused.map_or(Ok(()), Err)
    }
}

impl Drop for DueExecutor {
    fn drop(&mut self) {
        Shared::change(&self.shared, |shared| shared.has_ended = true);
    }
}

/// The tasks of a timer that come due, in order: see [`Timer::stream`].
///
/// After it is dropped, [`Timer::take_rejected`] has the tasks that it did not yield, and those that come due later.
/// Its drop takes the timer's lock.
#[must_use = "a stream does nothing unless it is polled"]
pub struct DueStream<T> {
    timer: Arc<Timer<T>>,
    shared: Arc<PlainMutex<Shared>>,
}

impl<T> Stream for DueStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let new = context.waker().clone(); // before the lock: a waker is foreign code
        loop {
            let mut shared = self.shared.lock();
            let Some(ticket) = shared.released.pop_front() else {
                if shared.has_ended {
                    return Poll::Ready(None);
                }
                let old = shared.waker.replace(new);
                drop(shared);
                drop(old);
                return Poll::Pending;
            };
            drop(shared);
            // A cancelled task is not claimed.
            if let Some(claimed) = self.timer.claim(ticket) {
                return Poll::Ready(Some(claimed.task));
            }
        }
    }
}

impl<T> Drop for DueStream<T> {
    fn drop(&mut self) {
        let mut shared = self.shared.lock();
        shared.has_ended = true;
        let (mut left, waker) = (std::mem::take(&mut shared.released), shared.waker.take());
        drop(shared);
        self.timer.reject(left.make_contiguous());
        drop(waker); // after the lock, as it is foreign code; it is not woken, as nothing comes any more
    }
}

impl fmt::Debug for DueExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueExecutor").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for DueStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueStream").finish_non_exhaustive()
    }
}
