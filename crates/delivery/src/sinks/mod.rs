//! Destinations of messages (rule D10). A [`Sink`] takes deliveries, and returns a verdict for each. A [`ReplySink`] gives
//! each verdict later.

#[cfg(feature = "http")]
pub(crate) mod beside;
pub(crate) mod delivery;
pub(crate) mod file;
pub(crate) mod function;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only webhooks have names"))]
pub(crate) mod inside;
pub(crate) mod line;
mod reply;
pub(crate) use delivery::Owner;
pub use delivery::{Delivery, Verdict, Verdicts};
#[cfg(feature = "http")]
pub use http::{Proxy, SharedWebhook, Webhook};
pub(crate) use reply::Replies;
pub use reply::Reply;

use std::sync::Arc;

use crate::base::error::DeliveryError;
use inside::Allowed;

/// There are no webhooks, and so no proxy of them.
#[cfg(not(feature = "http"))]
#[derive(Clone, Debug)]
pub enum Proxy {}

/// Makes sent messages durable. The writer calls it from its own thread before it commits an outcome.
pub type SyncFn = Arc<dyn Fn() -> Result<(), DeliveryError> + Send + Sync>;

/// Calls the given function once. Only for sinks of this project.
pub type AroundFn = Arc<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// A program's own destination, used by one thread at a time. Only [`send`](Sink::send) is required.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use std::time::Duration;
/// use tickwheel_delivery::{Deliverer, Delivery, DeliveryError, Destination, Message, Sink, Verdict, Verdicts};
///
/// struct Log(Sender<String>);
///
/// impl Sink for Log {
///     fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
///         let verdict = |it: &Delivery| match self.0.send(it.id().to_owned()) {
///             Ok(()) => Verdict::Delivered,
///             Err(gone) => Verdict::Refused(gone.to_string()),
///         };
///         Ok(Verdicts::Each(deliveries.iter().map(verdict).collect()))
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let (send, log) = channel();
/// let to = Destination::sink(move |_store_id| Ok(Log(send.clone())));
/// let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
/// deliverer.put(Message::after("tea", Duration::from_millis(10), "ready"))?;
/// assert_eq!(log.recv()?, "tea");
/// deliverer.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Sink: Send {
    /// The most messages that one call takes. Asked before each call.
    fn max_messages(&self) -> usize {
        256
    }

    /// The most bytes that one call takes, counted with keys and ids. The last message may go over it.
    fn max_bytes(&self) -> usize {
        4 << 20
    }

    /// Whether a call that takes longer than the time-out counts as unanswered.
    fn is_cut_off(&self) -> bool {
        true
    }

    /// Sends these messages, waits for the results, and returns them.
    ///
    /// # Errors
    /// The destination has failed for good, and will not come back by itself. This ends the run.
    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError>;

    /// Tells the sink, before a send, which sends it can forget. The outcomes of the first `sends` calls of
    /// [`Sink::send`] are on disk. After a crash, the engine does not send their arrived messages again, and does not
    /// ask for them. If `earlier` is true, the same holds for all messages that an earlier process sent.
    fn committed(&mut self, sends: u64, earlier: bool) {
        let _ = (sends, earlier);
    }

    /// How many sinks of this kind are opened at first, each for a separate thread. The settings may ask for more, or
    /// allow fewer.
    fn threads(&self) -> usize {
        1
    }

    /// A function around the loop of the sink's thread, so that a sink can keep a value while its thread lives.
    #[doc(hidden)] // of the Python bindings
    fn around(&self) -> Option<AroundFn> {
        None
    }

    /// The most sinks of this kind, if the settings ask for more than [`Sink::threads`].
    fn most_threads(&self) -> usize {
        self.threads()
    }

    /// How many more sends there may be, beside [`Sink::threads`]. They are for sends that take long, and for keys whose
    /// last send was not accepted. Without such places, a call that hangs delays other messages.
    fn spare(&self) -> usize {
        0
    }

    /// Whether this sink gets no spare places, whatever the settings say. With a second writer, the lines of a file would
    /// mix, and the [`Sink::position`] of one sink would pass messages that the other one has not sent.
    fn is_alone(&self) -> bool {
        false
    }

    /// The position of the destination, for [`Sink::arrived`] after a crash.
    fn position(&self) -> Option<String> {
        None
    }

    /// The numbers (`seq`) of the messages that have arrived. `suspects`: messages that a crashed process may have
    /// sent.
    ///
    /// # Errors
    /// The destination cannot be asked.
    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        let _ = (suspects, position);
        Ok(Vec::new())
    }

    /// A function that makes sent messages durable, if a send alone does not.
    fn sync(&self) -> Option<SyncFn> {
        None
    }

    /// Closes the sink.
    ///
    /// # Errors
    /// Messages that were sent before may not have arrived.
    fn close(&mut self) -> Result<(), DeliveryError> {
        Ok(())
    }
}

/// A program's own destination that answers each delivery later, by its [`Reply`]. It is opened once, and one thread
/// starts all deliveries. [`Destination::reply_sink`](crate::Destination::reply_sink) has an example.
pub trait ReplySink: Send {
    /// How many deliveries the sink can have in flight, at least 1.
    fn max_in_flight(&self) -> usize;

    /// The most bytes in flight, counted with keys and ids. The last message may go over it. If it is reached, a message
    /// that is not larger than its part of it (`max_bytes` by the number of places) starts all the same. So small messages
    /// do not wait for large ones, and all together have at most twice as many bytes.
    fn max_bytes(&self) -> usize {
        4 << 20
    }

    /// Whether a delivery that takes longer than the time-out counts as unanswered.
    fn is_cut_off(&self) -> bool {
        true
    }

    /// How many more deliveries there may be in flight, as [`Sink::spare`]. At most a third of the files that the process
    /// may open are used.
    fn spare(&self) -> usize {
        0
    }

    /// Whether it sends to the destinations that messages name. These may have `allowed` addresses inside. After an answer with a
    /// final status a message is not tried again. Connections are made through the proxy.
    #[doc(hidden)] // of the webhooks
    fn named(&self, allowed: &Allowed, final_statuses: &[u16], proxy: Option<&Proxy>) -> TakesNamed {
        let _ = (allowed, final_statuses, proxy);
        TakesNamed::No
    }

    /// Starts to send this delivery, and does not wait for the result. The sink gives the result to the reply later.
    ///
    /// # Errors
    /// The destination has failed for good. This ends the run.
    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError>;

    /// Ends the delivery whose reply has this number, because it took too long, and drops the reply. The delivery may
    /// have ended by itself meanwhile.
    fn abort(&mut self, number: u64) {
        let _ = number;
    }

    /// Closes the sink, and drops the replies that it has.
    ///
    /// # Errors
    /// Messages that were sent before may not have arrived.
    fn close(&mut self) -> Result<(), DeliveryError> {
        Ok(())
    }
}

/// Why a destination can't be named. A [`Sink`] takes batches on threads of its own, with a position and a sync; the webhooks
/// that messages name need the thread of a [`ReplySink`] beside them, and places of their own.
pub(crate) const TAKES_NO_NAMED: &str =
    "named destinations stand beside a webhook, handlers=, or nothing (--to named), and this sends to something else";

/// Whether a sink sends to destinations that messages name (D23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesNamed {
    /// No message may name one.
    No,
    /// A message may name one.
    Some,
    /// Each message has to name one.
    All,
}

/// An open sink of either kind.
pub enum Opened {
    /// It returns its verdicts.
    Sink(Box<dyn Sink>),
    /// It answers each delivery later.
    ReplySink(Box<dyn ReplySink>),
}

/// Opens a sink for the store with this id. A [`Sink`] is opened again for each further thread, and to replace one that
/// hangs.
pub type OpenSink = Arc<dyn Fn(&str) -> Result<Opened, DeliveryError> + Send + Sync>;
