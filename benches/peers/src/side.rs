//! What every timer of the comparison can do, in whole milliseconds of a virtual clock that starts at 0.

/// A timer under test. A payload is a number of eight bytes, as a pointer would be.
pub trait Side {
    /// What names a pending timer.
    type Key;

    fn new() -> Self;

    /// What another thread than the one that made it does once, before it calls the others.
    fn enter(&self) {}

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key;

    /// Takes a timer off; `true` if it was pending.
    fn cancel(&mut self, key: Self::Key) -> bool;

    /// Moves a pending timer.
    fn reset(&mut self, key: Self::Key, delay_ms: u64) -> Self::Key;

    /// The timer stays, its key goes.
    fn forget(&mut self, _key: Self::Key) {}

    /// Lets a millisecond pass and appends what fired: its payload, or what [`Side::payloads`] makes that from.
    fn tick(&mut self, fired: &mut Vec<u64>);

    /// Turns what [`Side::tick`] appended into payloads; not part of what is timed.
    fn payloads(&mut self, fired: Vec<u64>) -> Vec<u64> {
        fired
    }

    /// How many are pending.
    fn len(&self) -> usize;
}
