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

pub use arrow_rows::{ArrowRows, batches};
pub use clock::{DueClock, SystemWallTime, WallTime};
pub use columns::Columns;
pub use csv_rows::{CsvContent, CsvHeader, CsvRow, CsvRows};
pub use deliverer::Deliverer;
pub use delivery_rows::delivery_rows;
pub use destination::Destination;
pub use dispatcher::Event;
pub use engine::{Engine, Settings};
pub use error::{BadRecord, DeliveryError, StoreError};
pub use fields::Schema;
pub use handed::{HandedOff, read_batch, read_stream, write_stream};
pub use items::{Answer, Completion, Item, Receipt};
pub use lines::{Block, BlockReader};
pub use message::{Body, Cancel, Digest, Incoming, MAX_PAYLOAD, Message, checked};
pub use ndjson::Ndjson;
pub use open_options::OpenOptions;
pub use origin::{Origin, Record};
pub use parsed::Parsed;
pub use retry::Retry;
pub use sends::Sends;
pub use sinks::file::{LineSink, Target};
#[cfg(feature = "delivery-http")]
pub use sinks::http::{HttpAddress, HttpSink, IN_FLIGHT, LOOKUPS, idempotency_key};
pub use sinks::{AroundFn, Delivery, OpenSink, Replies, Reply, Sink, SyncFn, Turns, Verdict, Verdicts};
pub use store::opened::is_open_here;
pub use store::owner::Ownership;
pub use store::{Census, Letter, Percentiles, Progress};
pub use summary::{LATENESS_BOUNDS_US, Lateness, Summary};
pub use threads::{MOST_HANGING, Observer, Running};
pub use window::Bounds;
