//! Where a store is replicated to, until when a process may send, and what `status` says of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::Chain;
use crate::base::sync::Mutex;
use crate::store::sql::{Broken, Result};

/// A process may send for so long after the begin of its last confirmed insert.
pub(super) const LEASE_MS: i64 = 2_000;
/// The owner has lost the store if a standby sees nothing new for so long. Its clock may be slower by a tenth.
pub(super) const QUIET_MS: i64 = LEASE_MS + LEASE_MS / 10;
/// How often an idle owner inserts a row.
pub(crate) const BEAT_EVERY_MS: i64 = LEASE_MS / 3;

const HELD: i64 = i64::MIN;

type Open = Arc<dyn Fn() -> std::result::Result<Box<dyn Chain>, String> + Send + Sync>;
/// Milliseconds that also pass while the machine sleeps.
type ClockMs = Arc<dyn Fn() -> i64 + Send + Sync>;
type Look = Arc<dyn Fn(&Replication) -> bool + Send + Sync>;

/// The process ends, and did not wait for an answer.
const STOPPED: Broken = Broken::Unusable(
    "it was closed while PostgreSQL, or the disk, did not answer",
    "start again: what was not answered may be there or not",
);

/// Where a store is replicated to: what is accepted is there before it is answered.
#[derive(Clone)]
pub struct Replicate {
    open: Open,
    clock_ms: ClockMs,
    look: Look,
}

impl fmt::Debug for Replicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replicate") // an address has a password
    }
}

impl Replicate {
    pub(crate) fn with(open: Open, clock_ms: ClockMs) -> Self {
        Self { open, clock_ms, look: Arc::new(|_| true) }
    }

    /// Calls this function with the figures while the opening of the store waits for its owner, or catches up. It is called some ten
    /// times a second, in the thread that opens the store. If it returns `false`, the opening ends with
    /// [`DeliveryError::Closed`](crate::DeliveryError::Closed).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use tickwheel_delivery::Replicate;
    ///
    /// let stop = Arc::new(AtomicBool::new(false)); // another thread sets it
    /// let to = Replicate::to("postgresql://ticks@db.example/ticks?store=orders")?;
    /// let to = to.while_opening(move |figures| {
    ///     println!("{figures:?}");
    ///     !stop.load(Ordering::Relaxed)
    /// });
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    #[must_use]
    pub fn while_opening(self, look: impl Fn(&Replication) -> bool + Send + Sync + 'static) -> Self {
        Self { look: Arc::new(look), ..self }
    }

    /// The function that is called while it waits.
    pub(super) fn look(&self) -> Look {
        self.look.clone()
    }

    /// Connects.
    pub(super) fn open(&self) -> std::result::Result<Box<dyn Chain>, String> {
        (self.open)()
    }

    /// The lease of a process that has not begun.
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            clock_ms: self.clock_ms.clone(),
            look: self.look.clone(),
            until_ms: AtomicI64::new(i64::MIN),
            epoch: AtomicI64::new(-1),
            is_stopping: AtomicBool::new(false),
            quiet_ms: AtomicI64::new(HELD),
            seen: Mutex::default(),
        }
    }
}

/// The part that a process has in the chain of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// It gets what another process writes, and takes the store over when that one is gone.
    #[default]
    Standby,
    /// It accepts and sends.
    Owner,
    /// It has been the owner, and PostgreSQL has confirmed nothing for two seconds: it sends and answers nothing.
    QuietOwner,
}

/// A process and the chain of its store, in figures.
///
/// ```
/// use tickwheel_delivery::{Replication, Role};
///
/// assert_eq!(Replication::default().role, Role::Standby);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Replication {
    /// The present part of the process.
    pub role: Role,
    /// The number of the newest take-over, from 1. At 0 the store had no owner yet.
    pub epoch: i64,
    /// The host and the process id of the owner, as it gave them when it took the store over.
    pub owner: Option<(String, u32)>,
    /// The rows that a standby has not run, or that an owner waits for.
    pub lag_rows: u64,
    /// Their bytes.
    pub lag_bytes: u64,
    /// For how long there have been such rows, or PostgreSQL has not answered a standby.
    pub lag_ms: u64,
    /// When the newest base was made, in milliseconds since 1970. `None`: there is none, or it is not known yet.
    pub base_ms: Option<i64>,
    /// Why PostgreSQL did not answer the last question.
    pub trouble: Option<String>,
}

/// Until when this process may send, for all its threads.
pub(crate) struct Lease {
    clock_ms: ClockMs,
    look: Look,
    until_ms: AtomicI64,
    /// The number of its last take-over; below 0: there was none.
    epoch: AtomicI64,
    is_stopping: AtomicBool,
    /// Since when it is told as a quiet owner, or `HELD`.
    quiet_ms: AtomicI64,
    /// The figures, and since when there is a lag. Held for a moment only.
    seen: Mutex<(Replication, Option<i64>)>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("until_ms", &self.until_ms).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Lease {
    /// Whether a send may begin now.
    pub(crate) fn is_held(&self) -> bool {
        self.now_ms() < self.until_ms.load(Ordering::Acquire)
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.clock_ms)()
    }

    /// An insert that began at this time was confirmed.
    pub(super) fn renew(&self, began_ms: i64) {
        self.until_ms.store(began_ms + LEASE_MS, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.quiet_ms.store(self.now_ms(), Ordering::Relaxed); // the end says why
        self.until_ms.store(i64::MIN, Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(super) fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// The figures, as of now.
    pub(crate) fn figures(&self) -> Replication {
        let (mut it, since_ms) = self.seen.lock().clone();
        let is_owner = self.epoch() >= 0;
        it.role = match (is_owner, self.is_held()) {
            (false, _) => Role::Standby,
            (true, false) => Role::QuietOwner,
            (true, true) => Role::Owner,
        };
        it.lag_ms = since_ms.map_or(0, |since_ms| (self.now_ms() - since_ms).max(0) as u64);
        it
    }

    /// Notes the owner of the chain.
    pub(super) fn note_owner(&self, epoch: i64, owner: Option<(String, u32)>) {
        let mut seen = self.seen.lock();
        (seen.0.epoch, seen.0.owner) = (epoch, owner);
    }

    /// Notes when the newest base was made.
    pub(super) fn note_base(&self, made_ms: Option<i64>) {
        self.seen.lock().0.base_ms = made_ms;
    }

    /// Notes so many rows that are not there yet.
    pub(super) fn note_lag(&self, rows: u64, bytes: u64) {
        let now_ms = self.now_ms();
        let mut seen = self.seen.lock();
        (seen.0.lag_rows, seen.0.lag_bytes, seen.0.trouble) = (rows, bytes, None);
        seen.1 = if rows == 0 { None } else { seen.1.or(Some(now_ms)) };
    }

    /// Notes that the chain did not answer.
    pub(super) fn note_trouble(&self, reason: String) {
        let now_ms = self.now_ms();
        let mut seen = self.seen.lock();
        seen.0.trouble = Some(reason);
        seen.1 = seen.1.or(Some(now_ms));
    }

    /// Shows the figures to the program, while the store is opened for the first time.
    ///
    /// # Errors
    /// The opening is to end.
    pub(super) fn look(&self) -> Result<()> {
        if self.epoch() >= 0 { self.go_on() } else { self.ask() }
    }

    /// Shows the figures to the program.
    ///
    /// # Errors
    /// What waits is to end.
    pub(super) fn ask(&self) -> Result<()> {
        self.go_on()?;
        if (self.look)(&self.figures()) { Ok(()) } else { Err(Broken::Closed) }
    }

    /// Since the last call, the process has become a quiet owner (`Ok`: why), or goes on after that (`Err`: milliseconds).
    pub(crate) fn change(&self) -> Option<Result<String, u64>> {
        let (now_ms, is_quiet) = (self.now_ms(), !self.is_held());
        let since_ms = self.quiet_ms.swap(if is_quiet { now_ms } else { HELD }, Ordering::Relaxed);
        match (since_ms, is_quiet) {
            (HELD, true) => Some(Ok(self.figures().trouble.unwrap_or_else(|| "no answer".to_owned()))),
            (HELD, false) => None,
            (since_ms, true) => {
                self.quiet_ms.store(since_ms, Ordering::Relaxed);
                None
            }
            (since_ms, false) => Some(Err((now_ms - since_ms).max(0) as u64)),
        }
    }

    /// From now on nothing waits for the chain, or for the disk: the process ends.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The process ends.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.is_stopping() { Err(STOPPED) } else { Ok(()) }
    }
}
