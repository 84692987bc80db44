//! Where messages go (rule D10): a sink takes deliveries and says of each what became of it.

pub(crate) mod delivery;
pub(crate) mod delivery_rows;
pub(crate) mod file;
pub(crate) mod function;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod line;
mod reply;
#[cfg(feature = "http")]
pub(crate) mod send_log;
mod turns;

pub use delivery::{Delivery, Verdict, Verdicts};
#[cfg(feature = "http")]
pub use http::{SharedWebhook, Webhook};
pub(crate) use reply::Replies;
pub use reply::Reply;
pub use turns::Turns;

use std::sync::Arc;

use crate::base::error::DeliveryError;

/// Makes durable what a sink was sent; the writer calls it from its own thread before it commits an outcome.
pub type SyncFn = Arc<dyn Fn() -> Result<(), DeliveryError> + Send + Sync>;

/// Calls what it is given, once. Of sinks of the crate.
pub type AroundFn = Arc<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// A destination of a program's own, used by one thread at a time. Only [`send`](Sink::send) is required.
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
    /// How many messages one call takes at most. It is asked before each call.
    fn max_messages(&self) -> usize {
        256
    }

    /// How many bytes of payloads one call takes, one message more at most.
    fn max_bytes(&self) -> usize {
        4 << 20
    }

    /// Whether a call that takes longer than the time-out counts as unanswered.
    fn is_cut_off(&self) -> bool {
        true
    }

    /// Sends these, and waits for what becomes of them.
    ///
    /// # Errors
    /// What ends the run: a destination that will not come back by itself.
    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError>;

    /// Whether it sends the deliveries of a call one after another, each by itself. Then it is called by
    /// [`Sink::send_in_turn`], and what waits for a delivery that takes long goes to another sender. Such a sink has no
    /// [`Sink::position`]: what has arrived is not reported at once.
    #[doc(hidden)] // of sinks of the crate: `Turns` is not public
    fn is_in_turn(&self) -> bool {
        false
    }

    /// Sends those that `turns` gives, until there is none or one did not arrive; what became of that one.
    ///
    /// # Errors
    /// What ends the run.
    #[doc(hidden)]
    fn send_in_turn(&mut self, deliveries: &[Delivery], turns: &Turns) -> Result<Option<Verdict>, DeliveryError> {
        while let Some(place) = turns.begin() {
            match self.send(&deliveries[place..=place])? {
                Verdicts::Delivered => turns.ended(),
                Verdicts::Each(verdicts) => match verdicts.into_iter().next().unwrap_or(Verdict::NotTried) {
                    Verdict::Delivered => turns.ended(),
                    other => return Ok(Some(other)),
                },
            }
        }
        Ok(None)
    }

    /// What the sink need not remember any more; told before a send. The outcomes of the first `sends` calls of
    /// [`Sink::send`] are on disk: no crash makes the engine send again what arrived then, or ask for it. `earlier`: neither
    /// what an earlier process sent. A sink that answers later is not told.
    fn committed(&mut self, sends: u64, earlier: bool) {
        let _ = (sends, earlier);
    }

    /// How many sinks of this kind are opened, each for a thread of its own.
    fn threads(&self) -> usize {
        1
    }

    /// What the loop of its thread runs inside of: a sink may keep something for as long as its thread lives.
    #[doc(hidden)] // of the Python bindings
    fn around(&self) -> Option<AroundFn> {
        None
    }

    /// How many deliveries it can have in flight. With more than one, each is given to [`Sink::start`] and none to
    /// [`Sink::send`], and the sink is opened once, not for each of several threads.
    fn overlap(&self) -> usize {
        1
    }

    /// Begins to send this, without waiting for what becomes of it: the reply says that later.
    ///
    /// # Errors
    /// What ends the run.
    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        reply.settle(match self.send(&[delivery])? {
            Verdicts::Delivered => Verdict::Delivered,
            Verdicts::Each(verdicts) => verdicts.into_iter().next().unwrap_or(Verdict::NotTried),
        });
        Ok(())
    }

    /// Ends what was started with the reply of this number, which took too long, and drops the reply. It may have ended by
    /// itself meanwhile.
    fn abort(&mut self, number: u64) {
        let _ = number;
    }

    /// How far the destination is, for [`Sink::arrived`] after a crash.
    fn position(&self) -> Option<String> {
        None
    }

    /// Of messages that a crashed process may have sent, those that have arrived.
    ///
    /// # Errors
    /// The destination cannot be asked.
    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        let _ = (suspects, position);
        Ok(Vec::new())
    }

    /// What makes durable what was sent, where that takes more than a send.
    fn sync(&self) -> Option<SyncFn> {
        None
    }

    /// Ends it.
    ///
    /// # Errors
    /// What was sent before may not have arrived.
    fn close(&mut self) -> Result<(), DeliveryError> {
        Ok(())
    }
}

/// Opens a sink for the store with this id; called again for each further thread, and where a sink that hangs is replaced.
pub type OpenSink = Arc<dyn Fn(&str) -> Result<Box<dyn Sink>, DeliveryError> + Send + Sync>;
