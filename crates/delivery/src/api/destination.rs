//! [`Destination`]: where a program wants its messages to go. It is a description; nothing is open yet.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::DeliveryError;
use crate::sinks::file::{LineSink, Target};
use crate::sinks::function::FunctionSink;
#[cfg(feature = "http")]
use crate::sinks::http::{HttpSink, SharedWebhook};
use crate::sinks::{Delivery, OpenSink, Opened, ReplySink, Sink, Verdict};

/// Where messages go. The destination is opened when the store is opened, not before.
///
/// | | |
/// |---|---|
/// | [`standard_output`](Destination::standard_output), [`file`](Destination::file) | a line of JSON for each message |
/// | [`webhook`](Destination::webhook) | a POST of such a line, with the feature `http` |
/// | [`function`](Destination::function) | a call for each message |
/// | [`sink`](Destination::sink), [`reply_sink`](Destination::reply_sink) | a [`Sink`] or [`ReplySink`] of the program's own |
///
/// ```
/// use tickwheel_delivery::{Destination, Verdict, Webhook};
///
/// let lines = Destination::file("delivered.ndjson"); // or `standard_output()`
/// let post = Destination::webhook(Webhook::to("https://example.org/reminders")?.with_header("x-tenant", "17")?);
/// let each_its_own = Destination::named();
/// let call = Destination::function(|delivery| {
///     println!("{}: {}", delivery.id(), String::from_utf8_lossy(delivery.payload()));
///     Verdict::Delivered
/// });
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
///
/// A line has the members `id`, `key`, `due`, `payload` (or `payload_base64`, if the payload is not JSON),
/// `delivered_at`, `lateness_ms`, `attempt` and `redelivered`.
#[derive(Clone)]
pub struct Destination {
    shown: String,
    open: OpenSink,
}

impl Destination {
    /// Writes lines to standard output. Standard output stays open at the end.
    #[must_use]
    pub fn standard_output() -> Self {
        Self::lines("standard_output()".to_owned(), Target::StandardOutput)
    }

    /// Appends lines to this file; a missing file is created. A line is on disk before its message counts as delivered.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::lines(format!("file({:?})", path.to_string_lossy()), Target::File(path))
    }

    fn lines(shown: String, target: Target) -> Self {
        Self { shown, ..Self::sink(move |_| LineSink::open(&target)) }
    }

    /// Sends each message as a POST of a line to an `http` or `https` address, up to 1,024 at a time and as many more that
    /// take long. Redirects are not followed. A [`SharedWebhook`] can change address, headers and signatures later.
    ///
    /// Needs the feature `http`. A status of 200 to 299 means that the message has arrived. Each send of a message has
    /// the same header `Idempotency-Key`, so that the receiver can recognize a repeat.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn webhook(webhook: impl Into<SharedWebhook>) -> Self {
        let webhook = webhook.into();
        let shown = format!("http({webhook:?})");
        Self { shown, ..Self::reply_sink(move |_| HttpSink::open(Some(webhook.clone()))) }
    }

    /// Sends each message to the destination that it names: see
    /// [`Deliverer::set_destination`](crate::Deliverer::set_destination). A message that names none is refused.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn named() -> Self {
        Self { shown: "named()".to_owned(), ..Self::reply_sink(move |_| HttpSink::open(None)) }
    }

    /// Calls this function for each message, from up to eight threads, in order for each key. A panic counts as
    /// [`Verdict::Refused`].
    #[must_use]
    pub fn function(function: impl Fn(&Delivery) -> Verdict + Send + Sync + 'static) -> Self {
        let function = Arc::new(function);
        let sink = Self::sink(move |_| Ok(FunctionSink::new(function.clone())));
        Self { shown: "function(...)".to_owned(), ..sink }
    }

    /// Sends to the sink that this function opens. The function gets the id of the store. It is called once, again for
    /// each further thread of [`Sink::threads`], and again to replace a sink that hangs.
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
        let open: OpenSink = Arc::new(move |store_id| Ok(Opened::Sink(Box::new(open(store_id)?))));
        Self { shown: "sink(...)".to_owned(), open }
    }

    /// Sends to the sink that this function opens once. The function gets the id of the store. The sink answers each
    /// delivery later.
    ///
    /// ```
    /// use tickwheel_delivery::{Delivery, DeliveryError, Reply, ReplySink, Verdict};
    ///
    /// /// Hands each delivery to a thread of the program.
    /// struct Pool(std::sync::mpsc::Sender<(Delivery, Reply)>);
    ///
    /// impl ReplySink for Pool {
    ///     fn max_in_flight(&self) -> usize {
    ///         100
    ///     }
    ///
    ///     fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
    ///         self.0.send((delivery, reply)).map_err(|_| DeliveryError::Failed("the pool has ended".to_owned()))
    ///     }
    /// }
    ///
    /// # let (send, receive) = std::sync::mpsc::channel();
    /// # let folder = tempfile::tempdir()?;
    /// # let to = tickwheel_delivery::Destination::reply_sink(move |_| Ok(Pool(send.clone())));
    /// # let deliverer = tickwheel_delivery::Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// # deliverer.put(tickwheel_delivery::Message::after("tea", std::time::Duration::ZERO, "ready"))?;
    /// let (delivery, reply): (Delivery, Reply) = receive.recv()?;
    /// println!("{}", delivery.id());
    /// reply.settle(Verdict::Delivered);
    /// # assert_eq!(deliverer.close(None)?.delivered, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reply_sink<S: ReplySink + 'static>(
        open: impl Fn(&str) -> Result<S, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        let open: OpenSink = Arc::new(move |store_id| Ok(Opened::ReplySink(Box::new(open(store_id)?))));
        Self { shown: "reply_sink(...)".to_owned(), open }
    }

    /// Opens this destination once for each thread that sends.
    #[must_use]
    #[doc(hidden)]
    pub fn into_opener(self) -> OpenSink {
        self.open
    }
}

/// Shows only the host of a webhook's address, because the path and the query may hold a secret.
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
            let shown = format!(
                "{:?}",
                Destination::webhook(crate::Webhook::to("https://example.org/hidden?token=t").unwrap())
            );
            assert!(shown.contains("example.org") && !shown.contains("hidden") && !shown.contains("token"), "{shown}");
        }
    }
}
