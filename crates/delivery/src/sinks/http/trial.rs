//! A test send to a named destination (D23): one message that no store knows, with the checks of all others.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use super::{HttpSink, Proxy};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::DeliveryError;
use crate::message::named::NamedSettings;
use crate::message::{Body, Extras, Message};
use crate::sinks::inside::Allowed;
use crate::sinks::reply::Replies;
use crate::sinks::{Delivery, Reply, ReplySink as _, Verdict};

/// A test is waited for by a person, and by a server that stops.
const LONGEST: Duration = Duration::from_secs(10);

struct Answer(Sender<Verdict>);

impl Replies for Answer {
    fn settle(&self, _number: u64, verdict: Verdict) {
        let _ = self.0.send(verdict); // after the time-out it is not wanted
    }
}

/// Sends a message with the key `test`, by connections of its own, and waits at most ten seconds. Returns what came back, and how long it took.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn try_out(
    name: &str,
    settings: NamedSettings,
    allowed: &Allowed,
    proxy: Option<&Proxy>,
    usual_time_out: Duration,
) -> Result<(Verdict, Duration), DeliveryError> {
    let time_out = settings.sink_timeout_s.map_or(usual_time_out, Duration::from_secs_f64).min(LONGEST);
    let mut sink = HttpSink::open(None)?;
    sink.named(allowed, &[], proxy); // whichever it is, a refusal is shown as one
    let now_ms = SystemWallTime.now_us() / 1_000;
    // Its number says only that it is of a named one.
    let extras = Extras { destination: Some(name.into()), share: 1, ..Extras::default() };
    // A receiver that drops repeats does not drop the next test.
    let id = format!("test {now_ms}");
    let body = Body::new(Some("test"), &id, br#"{"test":true}"#, true).with_extras(extras);
    let message = Message::from_parts(body, now_ms, None);
    let to = Some(Arc::new(settings));
    let delivery = Delivery { to, ..Delivery::from_parts(message, 0, now_ms, 0, 1, false) };
    let (send, answer) = channel();
    let began = Instant::now();
    sink.start(delivery, Reply::new(1, Arc::new(Answer(send))))?;
    let none = Verdict::Unanswered { reason: "no answer in time".to_owned(), retry_after_ms: None };
    let verdict = answer.recv_timeout(time_out).unwrap_or(none);
    let took = began.elapsed();
    sink.close()?;
    Ok((verdict, took))
}
