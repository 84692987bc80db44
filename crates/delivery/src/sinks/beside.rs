//! Functions of the program as destinations that messages name, beside webhooks (rule D23).

use super::http::{HttpSink, Proxy, SharedWebhook};
use super::inside::Allowed;
use super::{Delivery, Opened, Reply, ReplySink, TakesNamed};
use crate::base::error::DeliveryError;

/// Gives a message to the functions if its destination is one, and to the webhooks otherwise.
struct Beside {
    webhooks: HttpSink,
    functions: Box<dyn ReplySink>,
    /// A message that names no destination is for the functions.
    has_own: bool,
    has_webhook: bool,
}

/// `functions` is open, and finds the function by the name of the destination. `has_own`: it has one for messages that name
/// none, which otherwise go to `webhook`.
///
/// # Errors
/// [`DeliveryError::Usage`] for an `https` webhook without certificates; [`DeliveryError::Failed`] if the system gives no thread.
pub fn beside_webhooks(
    functions: Box<dyn ReplySink>,
    has_own: bool,
    webhook: Option<SharedWebhook>,
) -> Result<Opened, DeliveryError> {
    let has_webhook = webhook.is_some();
    let webhooks = HttpSink::open(webhook)?;
    Ok(Opened::ReplySink(Box::new(Beside { webhooks, functions, has_own, has_webhook })))
}

impl ReplySink for Beside {
    fn max_in_flight(&self) -> usize {
        self.webhooks.max_in_flight()
    }

    fn max_bytes(&self) -> usize {
        self.webhooks.max_bytes()
    }

    fn spare(&self) -> usize {
        self.webhooks.spare()
    }

    fn named(&self, allowed: &Allowed, final_statuses: &[u16], proxy: Option<&Proxy>) -> TakesNamed {
        let _ = self.webhooks.named(allowed, final_statuses, proxy);
        if self.has_own || self.has_webhook { TakesNamed::Some } else { TakesNamed::All }
    }

    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        let is_function = match &delivery.to {
            Some(to) => to.function,
            None => self.has_own && delivery.body.share() == 0,
        };
        if is_function { self.functions.start(delivery, reply) } else { self.webhooks.start(delivery, reply) }
    }

    /// One of the two has it, and the other does nothing.
    fn abort(&mut self, number: u64) {
        self.functions.abort(number);
        self.webhooks.abort(number);
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        let functions = self.functions.close();
        self.webhooks.close().and(functions)
    }
}
