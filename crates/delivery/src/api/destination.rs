//! Where a program wants its messages to go, before anything is opened: [`Destination`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::DeliveryError;
use crate::sinks::file::{LineSink, Target};
use crate::sinks::function::FunctionSink;
#[cfg(feature = "http")]
use crate::sinks::http::{HttpSink, SharedWebhook, Webhook};
use crate::sinks::{Delivery, OpenSink, Sink, Verdict};

/// Where messages go. Nothing is opened before the store is.
///
/// | | |
/// |---|---|
/// | [`standard_output`](Destination::standard_output), [`file`](Destination::file) | a line of JSON for each message |
/// | [`http`](Destination::http), [`webhook`](Destination::webhook) | a POST of that line, with the feature `http` |
/// | [`function`](Destination::function) | a call for each message |
/// | [`sink`](Destination::sink) | a [`Sink`] of the program's own |
///
/// A line has the members `id`, `key`, `due`, `payload` (or `payload_base64`, if it is not JSON), `delivered_at`, `lateness_ms`,
/// `attempt` and `redelivered`.
#[derive(Clone)]
pub struct Destination {
    shown: String,
    open: OpenSink,
}

impl Destination {
    /// Lines on standard output, which stays open at the end.
    ///
    /// ```
    /// use tickwheel_delivery::Destination;
    /// let to = Destination::standard_output();
    /// ```
    #[must_use]
    pub fn standard_output() -> Self {
        Self::lines("standard_output()".to_owned(), Target::StandardOutput)
    }

    /// Lines that are appended to this file, which is made if there is none. They are on disk before their messages count as
    /// delivered.
    ///
    /// ```
    /// use tickwheel_delivery::Destination;
    /// let to = Destination::file("delivered.ndjson");
    /// ```
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::lines(format!("file({:?})", path.to_string_lossy()), Target::File(path))
    }

    fn lines(shown: String, target: Target) -> Self {
        Self::shown(shown, move |_| LineSink::open(&target))
    }

    /// A POST of a line to this address, `http` or `https`, for each message; up to 2,048 at a time. Redirects are not followed.
    ///
    /// Needs the feature `http`. A status of 200 to 299 means that the message has arrived. The header `Idempotency-Key` is the same each time a message is
    /// sent, so that the receiver can recognize a repeat.
    ///
    /// ```
    /// use tickwheel_delivery::Destination;
    /// let to = Destination::http("https://example.org/reminders")?;
    /// assert!(Destination::http("example.org").is_err());
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if this is no address.
    #[cfg(feature = "http")]
    pub fn http(url: &str) -> Result<Self, DeliveryError> {
        Webhook::to(url).map(Self::webhook)
    }

    /// As [`http`](Destination::http), with headers and signatures of your own. Those of a [`SharedWebhook`] may change.
    ///
    /// ```
    /// use tickwheel_delivery::{Destination, Webhook};
    /// let to = Destination::webhook(Webhook::to("https://example.org/reminders")?.with_header("x-tenant", "17")?);
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    #[cfg(feature = "http")]
    #[must_use]
    pub fn webhook(webhook: impl Into<SharedWebhook>) -> Self {
        let webhook = webhook.into();
        Self::shown(format!("http({webhook:?})"), move |_| HttpSink::open(webhook.clone()))
    }

    /// A call of this function for each message, from up to eight threads, in order for each key. A panic counts as
    /// [`Verdict::Refused`].
    ///
    /// ```
    /// use tickwheel_delivery::{Destination, Verdict};
    ///
    /// let to = Destination::function(|delivery| {
    ///     println!("{}: {}", delivery.id(), String::from_utf8_lossy(delivery.payload()));
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn function(function: impl Fn(&Delivery) -> Verdict + Send + Sync + 'static) -> Self {
        let function = Arc::new(function);
        Self::shown("function(...)".to_owned(), move |_| Ok(FunctionSink::new(function.clone())))
    }

    /// What this function opens. It is called with the id of the store: once, again for each further thread of
    /// [`Sink::threads`], and again where a sink that hangs is replaced.
    ///
    /// ```
    /// use tickwheel_delivery::{Delivery, DeliveryError, Destination, Sink, Verdicts};
    ///
    /// struct Counter(usize);
    ///
    /// impl Sink for Counter {
    ///     fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
    ///         self.0 += deliveries.len();
    ///         Ok(Verdicts::Delivered)
    ///     }
    /// }
    ///
    /// let to = Destination::sink(|_store_id| Ok(Counter(0)));
    /// ```
    #[must_use]
    pub fn sink<S: Sink + 'static>(open: impl Fn(&str) -> Result<S, DeliveryError> + Send + Sync + 'static) -> Self {
        Self::shown("sink(...)".to_owned(), open)
    }

    pub(crate) fn shown<S: Sink + 'static>(
        shown: String,
        open: impl Fn(&str) -> Result<S, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        Self { shown, open: Arc::new(move |store_id| Ok(Box::new(open(store_id)?))) }
    }

    /// Opens this destination once for each thread that sends.
    #[must_use]
    #[doc(hidden)]
    pub fn into_opener(self) -> OpenSink {
        self.open
    }
}

/// Of a webhook's address it shows the host only, as path and query may hold a secret.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination::{}", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_where_it_goes_and_no_secret__d12() {
        assert_eq!(format!("{:?}", Destination::standard_output()), "Destination::standard_output()");
        assert_eq!(format!("{:?}", Destination::file("a \"b\"")), r#"Destination::file("a \"b\"")"#);
        assert_eq!(format!("{:?}", Destination::function(|_| Verdict::NotTried)), "Destination::function(...)");
        #[cfg(feature = "http")]
        {
            let shown = format!("{:?}", Destination::http("https://example.org/hidden?token=t").unwrap());
            assert!(shown.contains("example.org") && !shown.contains("hidden") && !shown.contains("token"), "{shown}");
        }
    }
}
