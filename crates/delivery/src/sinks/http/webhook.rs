//! The description of a webhook: the address, the operator's headers, and the secrets that sign requests. Headers
//! and secrets may change while messages are sent to it (rules D10, D12).

use std::fmt;
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::address::HttpAddress;
use super::body::Body;
use super::certificates::Trusted;
use super::signature::Secret;
use crate::base::display::quoted;
use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;

/// The sink or HTTP itself sets these headers, or they would change where a request ends, and how it is read.
const TAKEN: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];
const TAKEN_FIRST_WORDS: [&str; 2] = ["proxy-", "tickwheel-"];
const MOST_HEADERS: usize = 64;
const MOST_SECRETS: usize = 16;

/// A webhook: each message is a POST to one address.
///
/// If there are secrets, requests are signed as [Standard Webhooks](https://www.standardwebhooks.com) says.
/// `webhook-id` is the value of `Idempotency-Key`. `webhook-timestamp` is the time of the attempt in seconds since
/// 1970, and `webhook-signature` has for each secret `v1,` and the base64 of the HMAC-SHA256 of `ID.TIMESTAMP.BODY`.
/// Use two secrets while a receiver changes from one secret to the other.
///
/// ```
/// use tickwheel_delivery::{Destination, Webhook};
/// let webhook = Webhook::to("https://example.org/reminders")?
///     .with_header("x-tenant", "17")?
///     .with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let to = Destination::webhook(webhook);
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
#[derive(Clone)]
pub struct Webhook {
    pub(super) address: HttpAddress,
    pub(super) headers: HeaderMap,
    pub(super) secrets: Vec<Secret>,
    pub(super) body: Body,
    /// `None`: the certificates of the system.
    pub(super) trusted: Option<Trusted>,
}

impl Webhook {
    /// Sends each message as a POST to this `http` or `https` address. For several addresses, set named destinations: see
    /// [`Deliverer::set_destination`](crate::Deliverer::set_destination).
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Webhook};
    /// let webhook = Webhook::to("https://example.org/reminders?team=7")?;
    /// assert!(Webhook::to("ftp://example.org").is_err());
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if this is not an address.
    pub fn to(url: &str) -> Result<Self, DeliveryError> {
        let address = HttpAddress::parse(url)?;
        Ok(Self { address, headers: HeaderMap::new(), secrets: Vec::new(), body: Body::Envelope, trusted: None })
    }

    /// Adds a header to each request. A name may be used several times. `Content-Type` and `User-Agent` replace the
    /// usual values.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Webhook};
    /// let webhook = Webhook::to("https://example.org/reminders")?.with_header("authorization", "Bearer 17")?;
    /// assert!(webhook.with_header("host", "example.com").is_err(), "the request has that anyway");
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the name or the value is not valid, or if tickwheel sets this header itself. The
    /// error does not show the value.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, DeliveryError> {
        let usage = |what: &str| DeliveryError::Usage(format!("the header {} {what}", quoted(name, 100)));
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| usage("has no usable name: write letters, digits and -, as in Authorization"))?;
        let is_taken = |it: &str| TAKEN.contains(&it) || TAKEN_FIRST_WORDS.iter().any(|word| it.starts_with(word));
        if is_taken(header.as_str()) {
            return Err(usage("is set by tickwheel: leave it out (allowed: others, such as Authorization or X-Team)"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| usage("has a value with a line end or another character that no header can have"))?;
        value.set_sensitive(true);
        if self.headers.len() >= MOST_HEADERS {
            return Err(usage(&format!("is one too many: there may be {MOST_HEADERS}")));
        }
        self.headers.append(header, value);
        Ok(self)
    }

    /// Signs each request with this secret too: `whsec_`, and 24 to 64 bytes in base64.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Webhook};
    /// let webhook = Webhook::to("https://example.org/")?.with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    /// assert!(webhook.with_secret("whsec_short").is_err());
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if this is not a secret. The error does not show it.
    pub fn with_secret(mut self, secret: &str) -> Result<Self, DeliveryError> {
        if self.secrets.len() >= MOST_SECRETS {
            return Err(DeliveryError::Usage(format!("there is one secret too many: there may be {MOST_SECRETS}")));
        }
        self.secrets.push(Secret::parse(secret)?);
        Ok(self)
    }
}

/// Shows only the host and the names of the headers.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.headers.keys().collect();
        f.debug_struct("Webhook")
            .field("address", &self.address)
            .field("headers", &names)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

/// A [`Webhook`] that can be replaced while messages are sent, for example if a receiver has changed its secret.
///
/// Clones share it. Each attempt uses the headers and secrets at the moment when it begins.
///
/// ```
/// use tickwheel_delivery::{Destination, SharedWebhook, Webhook};
/// let with = |token| Webhook::to("https://example.org/reminders")?.with_header("authorization", token);
/// let webhook = SharedWebhook::from(with("Bearer 17")?);
/// let to = Destination::webhook(webhook.clone());
/// webhook.replace(with("Bearer 18")?)?;
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
#[derive(Clone)]
pub struct SharedWebhook(Arc<Mutex<Arc<Webhook>>>);

impl SharedWebhook {
    /// From now on requests have the headers and secrets of this webhook.
    ///
    /// ```
    /// use tickwheel_delivery::{SharedWebhook, Webhook};
    /// let webhook = SharedWebhook::from(Webhook::to("https://example.org/a")?);
    /// webhook.replace(Webhook::to("https://example.org/a")?.with_header("x-tenant", "17")?)?;
    /// assert!(webhook.replace(Webhook::to("https://example.org/b")?).is_err(), "the address stays");
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the webhook has another address.
    pub fn replace(&self, webhook: Webhook) -> Result<(), DeliveryError> {
        let mut current = self.0.lock();
        if current.address != webhook.address {
            return Err(DeliveryError::Usage(
                "a webhook keeps its address: open another queue for another one".to_owned(),
            ));
        }
        *current = Arc::new(webhook);
        Ok(())
    }

    pub(super) fn current(&self) -> Arc<Webhook> {
        self.0.lock().clone()
    }
}

impl From<Webhook> for SharedWebhook {
    fn from(webhook: Webhook) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(webhook))))
    }
}

impl fmt::Debug for SharedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook() -> Webhook {
        Webhook::to("https://example.org/s3cret").unwrap()
    }

    fn refused(result: Result<Webhook, DeliveryError>) -> String {
        let Err(DeliveryError::Usage(error)) = result else { panic!("{result:?}") };
        error
    }

    #[test]
    fn a_header_that_is_none_is_refused_and_its_value_is_not_shown__d12() {
        for name in ["", "a b", "a:b", "ü", "a\n"] {
            let error = refused(webhook().with_header(name, "s3cret"));
            assert!(error.contains("has no usable name") && !error.contains("s3cret"), "{error}");
        }
        for value in ["s3cret\r\nx: y", "s3cret\n", "s3cret\0"] {
            let error = refused(webhook().with_header("x-a", value));
            assert!(error.starts_with("the header 'x-a' has a value") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_header_that_the_request_has_anyway_is_refused__d12() {
        let others = ["Keep-Alive", "Proxy-Authorization", "proxy-connection", "Tickwheel-Id", "TE"];
        for name in TAKEN.into_iter().chain(others) {
            let error = refused(webhook().with_header(name, "1"));
            assert!(error.starts_with(&format!("the header '{name}' is set by tickwheel: leave it out")), "{error}");
        }
        assert!(webhook().with_header("Content-Type", "application/cloudevents+json").is_ok());
    }

    #[test]
    fn there_may_be_only_so_many__d8() {
        let mut full = webhook();
        for number in 0..MOST_HEADERS {
            full = full.with_header("x-a", &number.to_string()).unwrap();
        }
        assert!(refused(full.with_header("x-a", "")).contains("one too many: there may be 64"));
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let full = (0..MOST_SECRETS).fold(webhook(), |webhook, _| webhook.with_secret(secret).unwrap());
        assert!(refused(full.with_secret(secret)).contains("there may be 16"));
    }

    #[test]
    fn no_secret_is_shown__d12() {
        let webhook = webhook().with_header("authorization", "s3cret").unwrap();
        let shown = format!("{:?}", webhook.with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap());
        assert!(shown.contains("example.org") && shown.contains("authorization"), "{shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("MfKQ"), "{shown}");
    }
}
