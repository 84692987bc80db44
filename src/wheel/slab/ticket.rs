//! `Ticket`: the name of a released task, on its way through the queue of an executor.

use std::fmt;

/// Stands for a due task on the way to its executor. [`Timer::claim`](crate::Timer::claim) takes the task.
///
/// It is good for one release. If the task is moved while it waits in the queue, this ticket finds nothing any more, and
/// the task gets another one when it is due again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The slot in the upper half, the lower half of the add number in the lower one. After 2^32 adds a number comes again. The ticket
    /// would then claim another task, but only a released one.
    bits: u64,
}

impl Ticket {
    #[inline]
    pub(crate) fn new(slot: u32, number: u64) -> Self {
        Self { bits: u64::from(slot) << 32 | u64::from(number as u32) }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.bits >> 32) as u32
    }

    /// The ticket as one number, to send it where only numbers go. [`Ticket::from_bits`] reads it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Clock, Config, Released, Ticket, Timer};
    ///
    /// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
    /// timer.add(Duration::ZERO, "now")?;
    /// let mut queue = Vec::new();
    /// timer.advance(&mut |released: Released| queue.extend(released.tickets.into_iter().map(Ticket::to_bits)));
    /// let claimed = timer.claim(Ticket::from_bits(queue[0])).expect("it is released");
    /// assert_eq!(claimed.task, "now");
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.bits
    }

    /// The inverse of [`Ticket::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { bits }
    }

    /// Whether it was made for this number.
    #[inline]
    pub(super) fn is_for(self, number: u64) -> bool {
        self.bits as u32 == number as u32
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("slot", &self.slot()).field("number", &(self.bits as u32)).finish()
    }
}
