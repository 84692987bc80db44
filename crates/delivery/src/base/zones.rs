//! Time zones by name, and the times that the clocks of a zone show (rules D1, D19).
//!
//! The folder of the system has names that are no place's zone: `localtime` differs from machine to machine, and
//! `right/Europe/Berlin` counts leap seconds. They are refused.
//!
//! Example: 2026-10-25 02:30 comes twice in Europe/Berlin, and 2026-03-29 02:30 never. Both are refused, because no rule
//! could know which moment is meant.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::base::display::quoted;
use crate::base::error::BadRecord;

const ALLOWED: &str = "a name of the IANA database, such as Europe/Berlin or UTC";
const NO_PLACE: [&str; 4] = ["factory", "localtime", "posixrules", "etc/unknown"];
const NO_PLACES: [&str; 2] = ["posix/", "right/"];

/// The zone of this name. `field` is the name of the field, for the error.
///
/// # Errors
/// There is no such zone here, or it is no place's zone.
pub(crate) fn zone_named(name: &str, field: &str) -> Result<TimeZone, BadRecord> {
    let plain = name.to_ascii_lowercase();
    let is_a_place = !NO_PLACE.contains(&&*plain) && !NO_PLACES.iter().any(|folder| plain.starts_with(folder));
    let found = if is_a_place { known_zone(name) } else { None };
    found.ok_or_else(|| {
        let reason = format!("{field} is {}: no time zone of this name is known here", quoted(name, 60));
        BadRecord::new(reason, format!("{field}: {ALLOWED}"))
    })
}

/// The same for a name that was accepted before.
pub(crate) fn known_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

/// Milliseconds since 1970 of a time that the clocks of a zone show. `shown_ms` is that time as if the zone were UTC.
///
/// # Errors
/// The clocks never show the time, or they show it twice.
pub(crate) fn epoch_ms_of(shown_ms: i64, zone: &TimeZone) -> Result<i64, String> {
    let name = zone.iana_name().unwrap_or("this zone");
    let shown = Timestamp::from_millisecond(shown_ms).map_err(|_| "is not on the calendar".to_owned())?;
    let shown = zone.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(shown));
    match shown.offset() {
        AmbiguousOffset::Gap { .. } => Err(format!("is at no time in {name}, whose clock is put forward there")),
        AmbiguousOffset::Fold { .. } => Err(format!("is twice in {name}, whose clock is put back there")),
        AmbiguousOffset::Unambiguous { .. } => {
            shown.unambiguous().map(Timestamp::as_millisecond).map_err(|_| "is not on the calendar".to_owned())
        }
    }
}
