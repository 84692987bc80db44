//! Delayed delivery: a message submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! ```text
//! read -> accept -> commit -> window -> wheel -> sink -> commit
//! ```

#![forbid(unsafe_code)]

mod arrow_json;
mod arrow_rows;
mod arrow_values;
mod clock;
mod columns;
mod csv_rows;
mod deliverer;
mod delivery_rows;
mod destination;
mod dispatcher;
mod engine;
mod error;
pub(crate) mod fields;
mod group;
mod handed;
mod hashes;
#[cfg(test)]
mod in_turn;
mod items;
pub(crate) mod json;
#[cfg(test)]
mod kill;
mod kill_point;
mod lanes;
mod lines;
mod loader;
#[cfg(test)]
mod long_outage;
pub(crate) mod message;
pub(crate) mod ndjson;
mod open_options;
mod origin;
mod outage;
mod parsed;
mod retry;
mod sends;
mod shown;
#[cfg(test)]
mod simulation;
pub(crate) mod sinks;
pub(crate) mod store;
mod summary;
#[cfg(test)]
mod testing;
mod threads;
pub(crate) mod times;
mod window;
mod writer;

pub use deliverer::Deliverer;
pub use destination::Destination;
pub use dispatcher::Event;
pub use error::{BadRecord, DeliveryError, StoreError};
pub use items::{Answer, Receipt};
pub use message::Message;
pub use open_options::OpenOptions;
pub use sinks::{Delivery, Reply, Sink, SyncFn, Verdict, Verdicts};
pub use store::Letter;
pub use summary::Summary;
pub use threads::Observer;

/// What the Python bindings use beside it.
#[cfg(feature = "python")]
pub(crate) use {
    arrow_rows::{ArrowRows, batches},
    clock::{DueClock, SystemWallTime, WallTime},
    columns::Columns,
    csv_rows::{CsvContent, CsvHeader, CsvRow, CsvRows},
    delivery_rows::delivery_rows,
    engine::{Engine, Settings},
    fields::Schema,
    handed::{read_stream, write_stream},
    items::{Completion, Item},
    lines::Block,
    message::{Body, Cancel, Digest, Incoming, checked},
    ndjson::Ndjson,
    origin::{Origin, Record},
    parsed::Parsed,
    retry::Retry,
    sends::Sends,
    sinks::{AroundFn, OpenSink, Turns},
    store::owner::Ownership,
    summary::LATENESS_BOUNDS_US,
    threads::Running,
    window::Bounds,
};
