//! The worker: the loop that claims released tasks from the executor's queue and runs them one after another.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::executor::Released;
use crate::panics;
use crate::sync::Receiver;
use crate::timer::Timer;

/// Runs what is released, one task after another, until all senders are dropped. A task that panics stops no other task.
pub(crate) fn run_released<T>(timer: &Arc<Timer<T>>, queue: &mut Receiver<Released>, mut run: impl FnMut(T)) {
    while let Ok(released) = queue.recv() {
        for handle in released.handles {
            if let Some(claimed) = timer.claim(handle) {
                panics::contain(|| run(claimed.task));
                timer.finish(1);
            }
        }
    }
}
