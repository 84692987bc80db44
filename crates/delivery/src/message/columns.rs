//! The names of the fields of a record (rules D1, D11): the usual names, or names given by the caller.

use crate::base::display::{cut, quoted};
use crate::base::error::BadRecord;

pub(crate) const CRON: &str = "cron";
pub(crate) const DELAY_MS: &str = "delay_ms";
/// Has a meaning only beside `op: "event"`.
pub const EVENT: &str = "event";
pub(crate) const EVERY: &str = "every";
pub(crate) const EXPIRES: &str = "expires";
/// Has a meaning only beside `every` and `cron`.
pub const MISSED: &str = "missed";
pub(crate) const OP: &str = "op";
pub(crate) const PAYLOAD_BASE64: &str = "payload_base64";
/// Has a meaning only beside `op: "event"`.
pub const REMEMBER_MS: &str = "remember_ms";
pub(crate) const TRACEPARENT: &str = "traceparent";
/// Has a meaning only beside `every` and `cron`.
pub const TZ: &str = "tz";
/// The events that a message waits for.
pub const UNTIL_EVENT: &str = "until_event";

/// The number of parts that are values.
pub(crate) const VALUES: usize = 12;
/// The places of the two times among them.
pub(crate) const DUE_AT: usize = 2;
pub(crate) const EXPIRES_AT: usize = 4;

/// The name of the field or column of each part. `None`: the caller gave no name, and the usual name is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The name of the id: usually `id`.
    pub id: Option<String>,
    /// The name of the key: usually `key`. If the caller gives a name, each record must have a key.
    pub key: Option<String>,
    /// Whether a record may have no key, although the caller gave its name.
    pub key_is_optional: bool,
    /// The name of the due time: usually `due`.
    pub due: Option<String>,
    /// The name of the payload: usually `payload`. If the caller gives a name, each record must have a payload.
    pub payload: Option<String>,
    /// The name of the destination: usually `destination`.
    pub destination: Option<String>,
    /// The name of the tenant: usually `tenant`.
    pub tenant: Option<String>,
}

impl Columns {
    /// The names that the caller gave. A key whose name ends with `?` may be missing.
    #[must_use]
    pub fn named(id: Option<String>, key: Option<String>, due: Option<String>, payload: Option<String>) -> Self {
        let plain = key.as_deref().and_then(|key| key.strip_suffix('?')).map(str::to_owned);
        let key_is_optional = plain.is_some();
        Self { id, key: plain.or(key), key_is_optional, due, payload, destination: None, tenant: None }
    }

    /// Whether each record must have a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.key.is_some() && !self.key_is_optional
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or("id")
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or("key")
    }

    pub(crate) fn due(&self) -> &str {
        self.due.as_deref().unwrap_or("due")
    }

    pub(crate) fn payload(&self) -> &str {
        self.payload.as_deref().unwrap_or("payload")
    }

    pub(crate) fn destination(&self) -> &str {
        self.destination.as_deref().unwrap_or("destination")
    }

    pub(crate) fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or("tenant")
    }

    /// The names of all parts but the payload, in the order of `fields::Values`.
    pub(crate) fn values(&self) -> [&str; VALUES] {
        let [id, key, due, destination] = [self.id(), self.key(), self.due(), self.destination()];
        [id, key, due, DELAY_MS, EXPIRES, OP, PAYLOAD_BASE64, TRACEPARENT, EVERY, CRON, destination, self.tenant()]
    }

    /// All names of values and of the payload, in ascending order.
    pub(crate) fn known(&self) -> Vec<&str> {
        let mut known = vec![self.payload()];
        known.extend(self.values());
        known.sort_unstable();
        known.dedup();
        known
    }

    /// Why no record can be read with these names; `None` if records can be read. `what` tells where the names come
    /// from: `header` or `schema`.
    ///
    /// The names must include an id and each name that the caller gave. They must also include a due time, unless
    /// there are delays, operations (`op`) or rules instead.
    #[must_use]
    pub fn fault(&self, what: &str, names: &[&str]) -> Option<BadRecord> {
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("the {what} names a column twice");
            return Some(BadRecord::new(reason, format!("each name once, and not {} again", quoted(twice[0], 100))));
        }
        let is_there = |name: &str| names.contains(&name);
        let needs_due = self.due.is_some() || ![DELAY_MS, OP, EVERY, CRON].into_iter().any(is_there);
        let parts = [
            (self.id(), "--id", true),
            (self.key(), "--key", self.needs_key()),
            (self.due(), "--due", needs_due),
            (self.payload(), "--payload", self.payload.is_some()),
        ];
        let missing: Vec<_> = parts.iter().filter(|(name, _, is_needed)| *is_needed && !is_there(name)).collect();
        if !missing.is_empty() {
            let mut without: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
            without.dedup();
            let options: Vec<String> = missing.iter().map(|(_, option, _)| format!("{option} NAME")).collect();
            let reason = format!("the {what} has no column {}", without.join(", "));
            let (options, there) = (options.join(" and "), names.join(", "));
            let allowed = format!("{options}, with a name of this file: {}", cut(&there, 200));
            return Some(BadRecord::new(reason, allowed));
        }
        None
    }

    /// The known name that the writer of an unknown name probably meant. `is_given` tells which other names the
    /// record has.
    ///
    /// Capitals, hyphens and underscores do not count. The rest of the name may differ in one letter, or in two
    /// letters if the known name has seven or more. `expires` allows one, and `cron` and names of two or three letters
    /// none. `ms` after a known name does not count. A known name that the record already has was not meant, and neither
    /// was `delay_ms` if the record has a due time.
    pub(crate) fn meant_by(&self, unknown: &str, is_given: impl Fn(&str) -> bool) -> Option<&str> {
        if unknown.len() > 64 {
            return None;
        }
        let given = plain(unknown);
        let in_ms = given.strip_suffix("ms");
        let usual = [self.payload(), DELAY_MS, PAYLOAD_BASE64, self.key(), self.due(), self.id(), EXPIRES, TRACEPARENT];
        let names = usual.into_iter().chain([self.destination(), self.tenant(), UNTIL_EVENT, EVERY, CRON]);
        names.into_iter().find(|name| {
            let is_out = is_given(name) || *name == DELAY_MS && is_given(self.due());
            let edits = match name.chars().count() {
                ..4 => 0,
                _ if *name == EXPIRES => 1, // two letters away is `express`
                _ if *name == CRON => 0,    // one letter away is `corn`
                4..7 => 1,
                _ => 2,
            };
            let known = plain(name);
            !is_out && *name != unknown && (in_ms == Some(&*known) || differ_at_most(&known, &given, edits))
        })
    }
}

/// Refuses an unknown name if its writer probably meant one of these, each with the most letters in which it differs.
pub(crate) fn refuse_near(unknown: &str, names: &[(&str, usize)]) -> Result<(), BadRecord> {
    let given = plain(unknown);
    let is_near = |(name, most): &&(&str, usize)| *name != unknown && differ_at_most(&plain(name), &given, *most);
    let Some((meant, _)) = names.iter().find(is_near) else { return Ok(()) };
    let reason = format!("{} is not a field: {meant} is probably meant", quoted(unknown, 60));
    Err(BadRecord::new(reason, format!("{meant}; a field with another meaning belongs into a payload")))
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Whether at most `most` edits turn one text into the other. An edit adds, removes or changes a letter, or swaps two
/// neighbours.
fn differ_at_most(one: &str, other: &str, most: usize) -> bool {
    strsim::osa_distance(one, other) <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(unknown: &str, given: &[&str]) -> Option<String> {
        Columns::default().meant_by(unknown, |name| given.contains(&name)).map(str::to_owned)
    }

    #[test]
    fn a_near_miss_of_a_known_name_is_seen_and_other_names_are_not__d1() {
        for unknown in ["paylod", "Payload", "PAYLOAD", "payolad", "pay_load", "payloads", "payl", "load", "pyld"] {
            let expected = (!["payl", "load", "pyld"].contains(&unknown)).then(|| "payload".to_owned());
            assert_eq!(meant(unknown, &["id", "due"]), expected, "{unknown}");
        }
        assert_eq!(meant("payloadBase64", &["due"]), Some("payload_base64".into()));
        assert_eq!(meant("delayMs", &[]), Some("delay_ms".into()));
        assert_eq!(meant("delay", &["id"]), Some("delay_ms".into()));
        assert_eq!(meant("delay", &["due"]), None, "beside a due time");
        assert_eq!(meant("Key", &["id", "due"]), Some("key".into()));
        assert_eq!(meant("due_ms", &["delay_ms"]), Some("due".into()));
        assert_eq!(meant("expires_ms", &["due"]), Some("expires".into()));
        for other in ["x", "ids", "due_at", "keys", "colour", "display", &"p".repeat(100)] {
            assert_eq!(meant(other, &["id"]), None, "{other}");
        }
        assert_eq!(meant("paylod", &["payload"]), None, "it is given");
    }

    #[test]
    fn edits_are_letters_more_less_other_and_swapped() {
        let differ = |one: &str, other: &str, most| differ_at_most(&plain(one), &plain(other), most);
        assert!(differ("payload", "payload", 0));
        assert!(differ("payload", "apyload", 1) && !differ("payload", "apyload", 0));
        assert!(differ("payload", "ayloda", 2) && !differ("payload", "ayloda", 1));
        assert!(!differ("payload", "pxyxoxd", 2) && differ("payload", "pxyxoxd", 3));
        assert!(differ("", "a", 1) && differ("a", "", 1));
    }

    #[test]
    fn the_callers_names_are_checked_against_a_header__d2() {
        let columns = Columns { due: Some("at".into()), key: Some("tail".into()), ..Columns::default() };
        let fault = columns.fault("header", &["tail", "x"]).unwrap();
        assert_eq!(fault.reason, "the header has no column id, at");
        assert_eq!(fault.allowed, "--id NAME and --due NAME, with a name of this file: tail, x");
        let usual = |names: &[&str]| Columns::default().fault("header", names).map(|fault| fault.reason);
        assert_eq!(usual(&["id", "x"]).unwrap(), "the header has no column due");
        assert_eq!(usual(&["id", "delay_ms"]), None);
        assert_eq!(usual(&["id", "op"]), None);
        assert_eq!(columns.fault("header", &["id", "at", "tail"]), None);
        assert_eq!(
            columns.fault("schema", &["id", "at", "tail", "x", "x"]).unwrap().reason,
            "the schema names a column twice"
        );
        assert_eq!(columns.meant_by("tial", |_| false), Some("tail"));
        assert_eq!(columns.meant_by("retail", |_| false), None);
    }
}
