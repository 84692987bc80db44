//! Tests that drive a whole engine.

mod bulk;
mod customers;
mod doubting;
mod expiring;
mod kill;
mod long_outage;
mod marking;
mod measuring;
mod neighbours;
mod one_by_one;
mod pacing;
mod parking;
mod pausing;
mod pausing_keys;
mod racing;
mod recurring;
mod replacing;
mod rescheduling;
mod simulation;
pub(crate) mod testing;
mod unanswered;
