//! Messages that are due soon: in memory, in order per key, on the timer, and between tries.

pub(crate) mod dispatcher;
pub(crate) mod doubt;
pub(crate) mod lanes;
pub(crate) mod measures;
pub(crate) mod outage;
pub(crate) mod outcome_feed;
pub(crate) mod pace;
pub(crate) mod places;
pub(crate) mod retry;
mod sharing;
pub(crate) mod window;
