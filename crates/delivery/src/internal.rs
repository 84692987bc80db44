//! Private parts of this crate that the Python bindings use. Do not use them elsewhere: they change in any release, and so do the
//! methods with the attribute `#[doc(hidden)]`. `tests/layout.rs` lists both.

pub use crate::arrow_rows::ArrowRows;
pub use crate::arrow_stream::batches;
pub use crate::clock::{DueClock, SystemWallTime, WallTime};
pub use crate::columns::{Columns, MISSED, TZ};
pub use crate::csv_rows::{CsvContent, CsvHeader, CsvRow, CsvRows};
pub use crate::delivery_rows::delivery_rows;
pub use crate::engine::Engine;
pub use crate::fields::{Fields, Other, Payload, Request, Schema, Value};
pub use crate::handed::{read_stream, write_stream};
pub use crate::incoming::{Digest, Incoming};
pub use crate::items::{Completion, Item, Ticket};
pub use crate::json::{on_one_line, write_text};
pub use crate::lines::Block;
pub use crate::measures::{BOUNDS_US, Cause, Histogram};
pub use crate::message::{Body, Cancel, Extras, Reschedule, check_name, check_traceparent, checked, not_json};
pub use crate::ndjson::Ndjson;
pub use crate::origin::{Origin, Record};
pub use crate::outcome_feed::{Ended, OutcomeFeed};
pub use crate::pace::Rate;
pub use crate::parsed::Parsed;
pub use crate::partition::PARTITIONS;
pub use crate::recurrence::Recurrence;
pub use crate::retry::Retry;
pub use crate::sends::Sends;
pub use crate::settings::Settings;
pub use crate::shown::{LONGEST_REASON, cut, with_commas};
pub use crate::sinks::line::LineWriter;
#[cfg(feature = "http")]
pub use crate::sinks::send_log::{SendLog, Sent};
pub use crate::sinks::{AroundFn, OpenSink, Turns};
pub use crate::store::maintenance::Stop;
pub use crate::store::maintenance::backup::backup;
pub use crate::store::maintenance::check::{Checked, check};
pub use crate::store::maintenance::compact::compact;
pub use crate::store::maintenance::pause::pause;
pub use crate::store::maintenance::restore::restore;
pub use crate::store::opened::{is_open_here, store_is_open};
pub use crate::store::owner::{Ownership, owners_of};
pub use crate::store::snapshot::{Snapshot, lane_of};
pub use crate::store::upgrade::step_up;
pub use crate::store::{ActionKind, Filter, Name, Progress};
pub use crate::threads::Running;
pub use crate::window::Bounds;

/// Due times, as numbers and as text.
pub mod times {
    pub use crate::times::{MAX_DUE_MS, due_from_digits_or_text, rfc_3339};
}
