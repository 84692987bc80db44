//! A webhook whose headers and secrets change while messages are sent to it (rules D10, D12).

use std::fmt;
use std::sync::Arc;

use super::webhook::Webhook;
use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::sinks::send_log::SendLog;

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
pub struct SharedWebhook {
    current: Arc<Mutex<Arc<Webhook>>>,
    /// The log of each send, if the program wants one.
    log: Option<Arc<SendLog>>,
}

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
        let mut current = self.current.lock();
        if current.address != webhook.address {
            return Err(DeliveryError::Usage(
                "a webhook keeps its address: open another queue for another one".to_owned(),
            ));
        }
        *current = Arc::new(webhook);
        Ok(())
    }

    /// The same webhook, which also notes each send in this log.
    #[must_use]
    #[doc(hidden)]
    pub fn noted_in(self, log: Arc<SendLog>) -> Self {
        Self { log: Some(log), ..self }
    }

    pub(super) fn current(&self) -> Arc<Webhook> {
        self.current.lock().clone()
    }

    pub(super) fn log(&self) -> Option<&Arc<SendLog>> {
        self.log.as_ref()
    }
}

impl From<Webhook> for SharedWebhook {
    fn from(webhook: Webhook) -> Self {
        Self { current: Arc::new(Mutex::new(Arc::new(webhook))), log: None }
    }
}

impl fmt::Debug for SharedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}
