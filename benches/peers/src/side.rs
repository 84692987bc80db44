//! What every timer of the comparison can do, in milliseconds of a virtual clock that starts at 0.

/// A timer under test. A payload is a number of eight bytes, as a pointer would be.
pub trait Side {
    /// Names a pending timer.
    type Key;

    fn new() -> Self;

    /// A thread that did not make this side calls this once, before any other method.
    fn enter(&self) {}

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key;

    /// Cancels a timer; `true` if it was pending.
    fn cancel(&mut self, key: Self::Key) -> bool;

    /// Moves a pending timer.
    fn reset(&mut self, key: Self::Key, delay_ms: u64) -> Self::Key;

    /// Drops the key of a timer that stays pending.
    fn forget(&mut self, _key: Self::Key) {}

    /// Advances by a millisecond. Appends the payload of each timer that fired, or a number for [`Side::payloads`].
    fn tick(&mut self, fired: &mut Vec<u64>);

    /// Turns the numbers of [`Side::tick`] into payloads; this is not timed.
    fn payloads(&mut self, fired: Vec<u64>) -> Vec<u64> {
        fired
    }

    /// How many timers are pending.
    fn len(&self) -> usize;
}
