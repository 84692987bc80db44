//! The sender: messages that are due soon, in memory, in order per key, on the timer, and between tries (rules D3 to D6).
//!
//! `table` decides what happens to a message, by pure functions. The parts around it decide nothing, and `dispatcher` joins
//! them. `docs/internals/sender.md` has the table.
//!
//! Four words have a meaning of their own here:
//!
//! - A key is in *doubt* if its last send was not accepted, or was slow.
//! - A *place* is the right to one send at a time. *Ordinary* places are for young sends, *spare* ones for sends that take long,
//!   and for keys in doubt.
//! - The destination is *down* if it accepts nothing, and several keys have failed since it did.
//! - A message has a *strike* for each end of the process during which it may have been sent, since its last answer.

pub(crate) mod clocks;
mod destination;
pub(crate) mod dispatcher;
pub(crate) mod doubt;
mod fair_queue;
pub(crate) mod lanes;
pub(crate) mod measures;
pub(crate) mod outage;
pub(crate) mod pace;
pub(crate) mod places;
pub(crate) mod retry;
mod sharing;
pub(crate) mod strikes;
mod table;
pub(crate) mod tallies;
pub(crate) mod tenants;
pub(crate) mod window;
