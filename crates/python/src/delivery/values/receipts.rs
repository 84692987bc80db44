//! The thread that gives callers their receipts. It attaches once for all answers that have come, and not for each
//! answer.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::delivery::values::records::{Parts, Receipt};
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::fork_epoch;
use crate::tools::native_lock::{attach, lock_plain};
use tickwheel::internal::sync::{PlainCondvar, PlainMutex, Receiver, Sender, spawn, unbounded};
use tickwheel_delivery::DeliveryError;
use tickwheel_delivery::internal::{Answers, Completion};

struct Answered {
    told: Py<PyAny>,
    parts: Parts,
    result: Result<Answers, DeliveryError>,
}

const AT_LEAST: Duration = Duration::from_secs(1);

/// The thread, until [`Receipts::end`].
pub(crate) struct Receipts {
    sender: PlainMutex<Option<Sender<Answered>>>,
    /// Whether the thread has given all receipts.
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Ended {
    has_ended: PlainMutex<bool>,
    changed: PlainCondvar,
}

impl Receipts {
    /// The thread of the engine with this number.
    pub(crate) fn start(engine: u64) -> std::io::Result<Self> {
        let (sender, receiver) = unbounded();
        let ended = Arc::new(Ended::default());
        let of_thread = ended.clone();
        spawn("answers-deliver", move || {
            attach(|py| give(py, engine, receiver));
            *of_thread.has_ended.lock() = true;
            of_thread.changed.notify_all();
        })?;
        Ok(Self { sender: PlainMutex::new(Some(sender)), ended })
    }

    /// Returns a function that a ticket calls with its answers. `told` is called with the receipt, or with an exception.
    /// `None` after the end.
    pub(crate) fn completion(&self, py: Python<'_>, told: Py<PyAny>, parts: Parts) -> Option<Completion> {
        let sender = lock_plain(py, &self.sender).clone()?;
        Some(Box::new(move |result| {
            if let Err(unsent) = sender.send(Answered { told, parts, result }) {
                std::mem::forget(unsent); // the thread ends only after this
            }
        }))
    }

    /// Waits until all receipts were given, at least a second: a callback may hang. Without the GIL.
    pub(crate) fn end(&self, timeout: Option<Duration>) {
        drop(self.sender.lock().take());
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout.max(AT_LEAST)));
        let mut has_ended = self.ended.has_ended.lock();
        while !*has_ended && until.is_none_or(|until| Instant::now() < until) {
            has_ended = match until {
                Some(until) => self.ended.changed.wait_until(has_ended, until),
                None => self.ended.changed.wait(has_ended),
            };
        }
    }
}

thread_local! {
    /// The engine that this thread belongs to.
    static ENGINE: Cell<Option<u64>> = const { Cell::new(None) };
    static GIVES_ANSWERS: Cell<bool> = const { Cell::new(false) };
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread gives the receipts of this engine.
pub(crate) fn gives_answers_of(engine: u64) -> bool {
    GIVES_ANSWERS.get() && is_thread_of(engine)
}

/// Whether this thread is the writer of this engine.
pub(crate) fn writes_for(engine: u64) -> bool {
    WRITES.get() && is_thread_of(engine)
}

/// Marks this thread as the writer of this engine.
pub(crate) fn this_thread_writes_for(engine: u64) {
    this_thread_is_of(engine);
    WRITES.set(true);
}

/// Whether the end of this engine would wait for this thread.
pub(crate) fn is_thread_of(engine: u64) -> bool {
    ENGINE.get() == Some(engine)
}

/// Marks this thread as a thread of this engine.
pub(crate) fn this_thread_is_of(engine: u64) {
    ENGINE.set(Some(engine));
}

fn give(py: Python<'_>, engine: u64, receiver: Receiver<Answered>) {
    this_thread_is_of(engine);
    GIVES_ANSWERS.set(true);
    let epoch = fork_epoch();
    loop {
        let received = match receiver.try_recv() {
            Ok(received) => Ok(received),
            Err(_) => py.detach(|| receiver.recv()),
        };
        let Ok(Answered { told, parts, result }) = received else { break };
        let Some(_call) = ForeignCall::try_enter_sink(py) else {
            std::mem::forget(told);
            continue;
        };
        let told = told.into_bound(py);
        let given = match result {
            Ok(answers) => told.call1((Receipt::new(&parts, &answers),)),
            Err(error) => told.call1((failures::to_python(py, &error).into_value(py),)),
        };
        if fork_epoch() != epoch {
            std::mem::forget(receiver); // a callback forked: what is in it is the parent's
            return;
        }
        if let Err(error) = given {
            error.write_unraisable(py, Some(&told));
        }
    }
}
