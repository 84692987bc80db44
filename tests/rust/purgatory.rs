//! Tests of the purgatory's public interface. Shared by them: an operation of closures, a lock for it, and a watchdog.
//!
//! The tests wait for events, with a time limit. The model tests check single interleavings (docs/internals/concurrency-proofs.md).

mod deadlines;
mod failing;
mod hot_key;
mod kafka;
mod leaving;
mod locks;
mod nesting;
mod panics;
mod remaining_checks;
mod sequences;
mod thread_end;
mod threads;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);

type Purgatory = DelayedOperationPurgatory<Wait>;
type Op = Operation<Wait>;
/// What a method does in addition.
type Call<A> = Option<Box<dyn Fn(A) + Send + Sync>>;
type CallOnOp = Option<Box<dyn Fn(&Op) + Send + Sync>>;

/// An operation that is complete when it is ready. The test chooses what else its methods do.
#[derive(Default)]
struct Wait {
    is_ready: AtomicBool,
    tries: AtomicU32,
    completed: AtomicU32,
    expired: AtomicU32,
    own_lock: Option<Arc<OwnLock>>,
    on_try: CallOnOp,
    /// Runs in a try in which it was not ready.
    after_try: CallOnOp,
    on_complete: Call<()>,
    on_expiration: Call<()>,
}

impl DelayedOperation for Wait {
    type Key = u32;

    fn try_complete(this: &Op) -> bool {
        this.tries.fetch_add(1, Ordering::Relaxed);
        TRIES.set(tries_here() + 1);
        this.on_try.iter().for_each(|call| call(this));
        let is_ready = this.is_ready.load(Ordering::Acquire);
        if !is_ready {
            this.after_try.iter().for_each(|call| call(this));
        }
        is_ready && this.force_complete()
    }

    fn on_complete(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
        self.on_complete.iter().for_each(|call| call(()));
    }

    fn on_expiration(&self) {
        self.expired.fetch_add(1, Ordering::AcqRel);
        self.on_expiration.iter().for_each(|call| call(()));
    }

    fn locked(&self, attempt: &mut dyn FnMut()) -> bool {
        if let Some(own_lock) = &self.own_lock {
            return own_lock.try_with(attempt);
        }
        attempt();
        true
    }
}

impl Wait {
    fn ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// How often it was completed, and how often expired.
    fn ended(&self) -> (u32, u32) {
        (self.completed.load(Ordering::Acquire), self.expired.load(Ordering::Acquire))
    }
}

thread_local! { static TRIES: Cell<usize> = const { Cell::new(0) }; }

/// How many tries this thread has made. The timer's threads may make others at any time.
fn tries_here() -> usize {
    TRIES.get()
}

fn wait() -> Op {
    wait_with(Wait::default())
}

fn wait_with(wait: Wait) -> Op {
    Operation::new(HOUR, wait)
}

fn purgatory() -> (Arc<SystemTimer>, Arc<Purgatory>) {
    on_timer(&Config::default())
}

fn on_timer(config: &Config) -> (Arc<SystemTimer>, Arc<Purgatory>) {
    let timer = Arc::new(SystemTimer::new("purgatory", config).unwrap());
    (Arc::clone(&timer), Arc::new(DelayedOperationPurgatory::new(timer, true)))
}

/// Watches an operation that is not complete.
fn watch(purgatory: &Purgatory, op: &Op, keys: impl IntoIterator<Item = u32>) {
    assert_eq!(purgatory.try_complete_else_watch(op, keys), Ok(false));
}

fn is_same(one: &Op, other: &Op) -> bool {
    std::ptr::eq(&raw const **one, &raw const **other)
}

/// No operation waits, and no list and no timer has one: `(waiting, watched, keys, delayed, on the timer)`.
const EMPTY: (u64, usize, usize, usize, usize) = (0, 0, 0, 0, 0);

fn left(timer: &SystemTimer, purgatory: &Purgatory) -> (u64, usize, usize, usize, usize) {
    let stats = purgatory.stats();
    (stats.waiting, stats.watched, stats.keys, stats.delayed, timer.len())
}

fn assert_empty(timer: &SystemTimer, purgatory: &Purgatory) {
    assert_eq!(left(timer, purgatory), EMPTY, "(waiting, watched, keys, delayed, on the timer)");
}

/// A check that runs in this moment may come back to the timer once more.
fn until_empty(timer: &SystemTimer, purgatory: &Purgatory) {
    until(|| left(timer, purgatory) == EMPTY);
}

/// A re-entrant lock. A thread that cannot take it does not wait.
#[derive(Default)]
struct OwnLock {
    /// The number of the thread that holds it, or 0.
    holder: AtomicU64,
}

impl OwnLock {
    fn try_with(&self, work: &mut dyn FnMut()) -> bool {
        let own = thread_number();
        let is_outermost = match self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(holder) if holder == own => false,
            Err(_) => return false,
        };
        let worked = catch_unwind(AssertUnwindSafe(work));
        if is_outermost {
            self.holder.store(0, Ordering::Release);
        }
        worked.unwrap_or_else(|payload| resume_unwind(payload));
        true
    }

    fn is_free(&self) -> bool {
        self.holder.load(Ordering::Acquire) == 0
    }
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! { static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed); }
    OWN.with(|own| *own)
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().name("test".to_owned()).spawn(body).unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let join = |thread: JoinHandle<T>| thread.join().unwrap_or_else(|payload| resume_unwind(payload));
    threads.into_iter().map(join).collect()
}

/// Runs `body`, which must not hang.
fn within(limit: Duration, body: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = spawn(move || {
        body();
        sender.send(()).unwrap();
    });
    assert_ne!(
        receiver.recv_timeout(limit),
        Err(mpsc::RecvTimeoutError::Timeout),
        "it hangs: not over after {limit:?}"
    );
    join([thread]);
}

/// Yields until the condition is true.
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not so after {PATIENCE:?}");
        thread::yield_now();
    }
}
