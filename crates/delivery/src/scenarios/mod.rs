//! Tests that drive a whole engine.

mod bulk;
mod cancelling;
mod customers;
mod doubting;
mod due_times;
mod expiring;
mod kill;
mod large_tickets;
mod long_outage;
mod marking;
mod measuring;
mod neighbours;
mod pacing;
mod parking;
mod pausing;
mod pausing_keys;
mod racing;
mod recovering;
mod recurring;
mod replacing;
mod rescheduling;
mod retrying;
mod simulation;
mod small_memory;
pub(crate) mod testing;
mod trying_again;
mod unanswered;
