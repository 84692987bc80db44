//! Named destinations (rule D23): an address, headers, secrets and limits for each, which the store keeps as JSON. Tenants
//! have limits too (D24).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

use crate::base::display::quoted;
use crate::base::times::rfc_3339;

/// The settings of a named destination, as the store and the HTTP API have them. What is left out is as for `--to`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NamedSettings {
    /// Where a message is sent: `http` or `https`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// It is a function of the Python program, and has no address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub function: bool,
    /// Further headers of each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Requests are signed with each of these secrets, as Standard Webhooks says. Secrets are only written: what is read
    /// back has none. A change without secrets keeps those that are set, and an empty list takes them away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
    /// When the secrets were set, in RFC 3339. It is only read: a change may have it, and does not look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_set: Option<String>,
    /// What is sent as the body of a request.
    #[serde(skip_serializing_if = "NamedBody::is_envelope")]
    pub body: NamedBody,
    /// The certificates, in PEM, that the one of an `https` address is checked with. Empty: those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificates: String,
    /// The most messages in a time: `100/s`, `30/min`, `500/h` or `1/day`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The most requests at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// How many more there may be that take long, or whose key is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare: Option<usize>,
    /// The waits after attempts that were not accepted, in seconds. The last one is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_s: Option<Vec<f64>>,
    /// How long a request may take, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_timeout_s: Option<f64>,
    /// It is paused by itself after it has failed for so many days: counted from its first failure since the last success, or
    /// since the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_after_days: Option<f64>,
    /// Whether it is paused from this change on. `None`: as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// The settings of one tenant, as the store and the HTTP API have them. What is left out is as for all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSettings {
    /// The most messages in a time, over all destinations: `100/s`, `30/min`, `500/h` or `1/day`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The most messages that are out at a time, over all destinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// How many messages it sends in each of its turns at a destination, from 1 to 100. `None`: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Whether it is paused from this change on. `None`: as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl NamedSettings {
    /// What the store keeps. `before`: what it has.
    pub(crate) fn after(self, before: Option<Self>, now_ms: i64) -> Self {
        let before = before.map(|it| (it.secrets, it.secrets_set)).unwrap_or_default();
        let (secrets, secrets_set) = match self.secrets {
            None => before,
            Some(secrets) if secrets.is_empty() => (None, None),
            secrets if secrets == before.0 => before,
            secrets => (secrets, std::str::from_utf8(&rfc_3339(now_ms)).map(str::to_owned).ok()),
        };
        Self { secrets, secrets_set, ..self }
    }

    /// What may be read back.
    pub(crate) fn without_secrets(self) -> Self {
        Self { secrets: None, ..self }
    }
}

/// The reason for which something is refused that names this destination.
pub(crate) fn no_destination(name: &str) -> String {
    format!("there is no destination {}", quoted(name, 80))
}

/// Shows no secret, and no header.
impl fmt::Debug for NamedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedSettings").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}

/// The body of a request to a named destination.
///
/// In the settings as JSON, it is `"envelope"`, `"payload"`, or the template itself: an object or an array. So a template
/// is written as the JSON that it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamedBody {
    /// An object with the payload, the name and the times of the message, as [`Destination`](crate::Destination) says.
    #[default]
    Envelope,
    /// The payload alone. The name and the times are in headers: `Tickwheel-Id`, `Tickwheel-Key`, `Tickwheel-Due`,
    /// `Tickwheel-Attempt` and `Tickwheel-Redelivered`, with `%20` and the like where needed.
    Payload,
    /// JSON with places within its strings, as in `{"text": "For {{payload.user.name|you}}: {{payload.count}}"}`.
    Template(String),
}

impl NamedBody {
    fn is_envelope(&self) -> bool {
        *self == Self::Envelope
    }
}

impl Serialize for NamedBody {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Envelope => to.serialize_str("envelope"),
            Self::Payload => to.serialize_str("payload"),
            Self::Template(json) => serde_json::from_str::<&RawValue>(json).map_err(ser::Error::custom)?.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for NamedBody {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(from).map_err(de::Error::custom)?;
        Ok(match json.get() {
            "\"envelope\"" => Self::Envelope,
            "\"payload\"" => Self::Payload,
            template => Self::Template(template.to_owned()), // it is checked with the other settings
        })
    }
}
