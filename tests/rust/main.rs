//! Tests of the crate's public interface: time, order and exact cancels on a manual clock, and the real threads.

#![expect(non_snake_case, reason = "a test name ends with the rule that it tests, as in __t9")]

mod batches;
mod driving;
mod edges;
mod executors;
mod exported;
mod golden;
mod layout;
mod levels;
mod order;
mod periodic;
mod purgatory;
mod recording;
mod scenarios;
mod single_threaded;
mod support;
mod system;
