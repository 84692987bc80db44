//! Private parts of this crate that the Python bindings use. Do not use them elsewhere: they change in any release, and so do the
//! methods with the attribute `#[doc(hidden)]`. `tests/layout.rs` lists both.

pub use crate::base::clock::{DueClock, SystemWallTime, WallTime};
pub use crate::base::display::{LONGEST_REASON, cut, with_commas};
pub use crate::base::error::OTHER_CONTENT;
pub use crate::base::json::{on_one_line, write_text};
pub use crate::base::open_stores::{is_open_here, store_is_open};
pub use crate::base::times::checked_pause_end;
pub use crate::due::measures::{BOUNDS_US, CAUSES, Histogram};
pub use crate::due::window::Bounds;
pub use crate::formats::arrow_rows::ArrowRows;
pub use crate::formats::arrow_stream::{ArrowStream, batches, has_dictionaries};
pub use crate::formats::csv_rows::Csv;
pub use crate::formats::hand_off::{read_hand_off, write_stream};
pub use crate::formats::lines::Block;
pub use crate::formats::ndjson::Ndjson;
pub use crate::group::items::{Answers, Completion, Failing, Item, TenantChange, Ticket};
pub use crate::group::operations::{ANSWERS, OPERATIONS};
pub use crate::message::columns::{Columns, EVENT, MISSED, REMEMBER_MS, TZ, UNTIL_EVENT};
pub use crate::message::fields::{Fields, Other, Payload, Request, Schema, Value};
pub use crate::message::incoming::{Digest, Incoming, Origin};
pub use crate::message::parsed::Parsed;
pub use crate::message::partition::PARTITIONS;
pub use crate::message::record::record_as_given;
pub use crate::message::{
    Body, Cancel, Extras, MAX_PAYLOAD, Reschedule, check_name, check_traceparent, checked, checked_destination,
    checked_tenant, not_json,
};
pub use crate::run::engine::Engine;
pub use crate::run::engine::destinations::DestinationMeasures;
pub use crate::run::engine::tenants::TenantSeen;
pub use crate::run::settings::{SETTINGS, check_destination, check_tenant};
pub use crate::run::threads::Running;
#[cfg(feature = "http")]
pub use crate::sinks::beside::beside_webhooks;
pub use crate::sinks::function::{FUNCTION_THREADS, MOST_FUNCTION_THREADS, SPARE_FUNCTION_THREADS};
pub use crate::sinks::line::LineWriter;
pub use crate::sinks::{AroundFn, OpenSink, Opened};
pub use crate::store::file::owner::{Ownership, owners_of};
pub use crate::store::look::destinations::{DestinationCounts, DestinationSeen};
pub use crate::store::look::message::Seen;
pub use crate::store::look::messages::PageOf;
pub use crate::store::look::snapshot::Snapshot;
pub use crate::store::look::troubles::{ActionSeen, Kept};
pub use crate::store::maintenance::Stop;
pub use crate::store::maintenance::backup::{backup, restore};
pub use crate::store::maintenance::check::{Checked, check};
pub use crate::store::maintenance::closed::compact;
pub use crate::store::{ActionKind, Filter, MOST_PAUSED_KEYS, Outcome, PartKind, Progress};

/// Due times, as numbers and as text.
pub mod times {
    pub use crate::base::due_times::due_from_digits_or_text;
    pub use crate::base::times::{MAX_DUE_MS, rfc_3339};
}
