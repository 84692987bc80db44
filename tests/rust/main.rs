//! The crate from outside: rules of time, order and exactness, on the manual clock; and the threads.

#![expect(non_snake_case, reason = "a test name ends with the rule it holds up, as in __t9")]

mod batches;
mod driving;
mod edges;
mod executors;
mod golden;
mod layout;
mod levels;
mod order;
mod periodic;
mod purgatory;
mod recording;
mod scenarios;
mod support;
mod system;
