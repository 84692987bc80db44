//! A webhook whose headers and secrets change while messages are sent to it (rules D10, D12).

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::webhook::Webhook;
use crate::delivery::error::DeliveryError;
use crate::sync::PlainMutex;

/// A [`Webhook`] that can be replaced while messages are sent to it, as a secret that a receiver has changed.
///
/// Clones share it. A request has what holds when it is begun; a further attempt has what holds then.
///
/// ```
/// use tickwheel::delivery::{Destination, SharedWebhook, Webhook};
/// let with = |token| Webhook::to("https://example.org/reminders")?.with_header("authorization", token);
/// let webhook = SharedWebhook::from(with("Bearer 17")?);
/// let to = Destination::webhook(webhook.clone());
/// webhook.replace(with("Bearer 18")?)?;
/// # Ok::<(), tickwheel::delivery::DeliveryError>(())
/// ```
#[derive(Clone)]
pub struct SharedWebhook(Arc<PlainMutex<Arc<Webhook>>>);

impl SharedWebhook {
    /// From now on requests have the headers and secrets of this one.
    ///
    /// ```
    /// use tickwheel::delivery::{SharedWebhook, Webhook};
    /// let webhook = SharedWebhook::from(Webhook::to("https://example.org/a")?);
    /// webhook.replace(Webhook::to("https://example.org/a")?.with_header("x-tenant", "17")?)?;
    /// assert!(webhook.replace(Webhook::to("https://example.org/b")?).is_err(), "the address stays");
    /// # Ok::<(), tickwheel::delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if it has another address.
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
        Self(Arc::new(PlainMutex::new(Arc::new(webhook))))
    }
}

impl fmt::Debug for SharedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}
