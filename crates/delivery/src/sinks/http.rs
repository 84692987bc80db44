//! Webhooks: each message is a POST to one host, many in flight at a time (rules D6, D10).
//!
//! - The body is the same line as in the file sink, or what a named destination has set: [`body`]. Each send of a message has the same `Idempotency-Key`, so that the
//!   receiver can recognize a repeat: 128 bits of `BLAKE2b`, in hex, of the JSON array `[key,id]`.
//! - A status of 200 to 299 means that the message has arrived; [`answers`] has the other answers. A redirect is not
//!   followed, because the destination is a setting of the operator (D12). [`tunnels`] go through the operator's proxy, if there is one.
//! - One thread has all connections. They stay open between messages. At most one connection is opened for each message
//!   in flight.
//! - If a request takes too long, the engine cuts it off, and its connection is closed. [`lookups`] has the threads for
//!   names.
//! - Certificates are checked with the certificates of the system, or of `SSL_CERT_FILE`.
//! - The text of an answer that echoes a secret of the operator is not shown: [`masking`].
//! - [`Webhook`] has the further headers of a request, and the secrets that sign it; [`SharedWebhook`] may change them.

pub(crate) mod address;
mod answers;
mod body;
mod certificates;
mod connect;
mod lookups;
mod masking;
mod proxy;
mod signature;
mod tls_errors;
pub(crate) mod trial;
mod tunnels;
mod webhook;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use blake2b_simd::Params;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustc_hash::FxHashMap;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet, spawn_local};

use self::body::{Body, Content, content, envelope, payload};
use self::certificates::Trusted;
use self::connect::Connect;
use self::lookups::{Given, Known, Lookups};
use self::masking::Sent;
pub use self::proxy::Proxy;
use self::signature::signatures;
pub use self::webhook::{SharedWebhook, Webhook};
use super::inside::Allowed;
use super::line::LineWriter;
use super::{Delivery, Reply, ReplySink, TakesNamed, Verdict};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::DeliveryError;
use crate::base::json::write_text;
use crate::message::named::NamedSettings;

/// The most messages in flight, if the process may have this many connections.
pub(crate) const IN_FLIGHT: usize = 1_024;
/// How many more requests are in flight at most, if they take long.
const SPARE: usize = 1_024;

/// How many named destinations are kept as they are sent to.
const MOST_KNOWN: usize = 10_000;

/// How many files the rest of the process may have open.
const OTHER_FILES: u64 = 256;
/// A receiver closes an idle connection after some seconds to minutes. A request that arrives in this moment is lost.
const IDLE: Duration = Duration::from_secs(15);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The trace and the span in which the message was made, so that the receiver continues the trace.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The process that sends, if the store is replicated.
const TICKWHEEL_STORE: HeaderName = HeaderName::from_static("tickwheel-store");
const TICKWHEEL_EPOCH: HeaderName = HeaderName::from_static("tickwheel-epoch");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");

type Requests = Client<Connect, Full<Content>>;

/// POSTs to one host.
#[derive(Debug)]
pub(crate) struct HttpSink {
    /// `None`: each message names its destination.
    webhook: Option<SharedWebhook>,
    given: Given,
    own: Requests,
    to_named: (Connect, Requests),
    /// Of each named destination, by its number, the settings of the last send, and what was made of them.
    named: FxHashMap<i64, (Arc<NamedSettings>, Arc<Webhook>, Requests)>,
    max_in_flight: usize,
    lines: LineWriter,
    to_thread: Option<UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Command {
    Post(Box<(Requests, Request<Full<Content>>, Sent)>, Reply),
    Abort(u64),
}

impl HttpSink {
    /// Starts the thread for the connections. Nothing is connected yet.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] for `https` if the system has no certificates to check the receiver with;
    /// [`DeliveryError::Failed`] if the system gives no thread.
    pub(crate) fn open(webhook: Option<SharedWebhook>) -> Result<Self, DeliveryError> {
        Self::with(webhook, &Lookups::start().map_err(|error| DeliveryError::no_thread(&error))?)
    }

    fn with(webhook: Option<SharedWebhook>, lookups: &Lookups) -> Result<Self, DeliveryError> {
        let max_in_flight = most_in_flight();
        let is_https = webhook.as_ref().is_some_and(|it| it.current().address.is_https());
        // A destination that is set later may need certificates. Without any, it gets an error for each request.
        let given = Given::default();
        let (own, named) = Connect::new(true, lookups, &given)
            .or_else(|error| if is_https { Err(error) } else { Connect::new(false, lookups, &given) })?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| DeliveryError::no_thread(&error))?;
        let (to_thread, commands) = unbounded_channel(); // bounded by the messages in flight
        let known = given.clone();
        let thread = thread::Builder::new()
            .name("http-deliver".to_owned())
            // Requests in flight end with the set of tasks, when the sink is closed.
            .spawn(move || LocalSet::new().block_on(&runtime, receive(commands, known)))
            .map_err(|error| DeliveryError::no_thread(&error))?;
        Ok(Self {
            webhook,
            given,
            own: client(own),
            to_named: (named.clone(), client(named)),
            named: FxHashMap::default(),
            max_in_flight,
            lines: LineWriter::default(),
            to_thread: Some(to_thread),
            thread: Some(thread),
        })
    }

    /// # Errors
    /// The reason, if no body can be made for this message.
    fn request(&mut self, delivery: &Delivery) -> Result<(Requests, Request<Full<Content>>, Sent), String> {
        let again = delivery.body.extras().and_then(|extras| extras.again);
        let id = idempotency_key(delivery.body.key(), delivery.body.id(), again);
        let id_value = HeaderValue::from_str(&id).expect("hex");
        let (webhook, client) = self.webhook_for(delivery)?;
        let Webhook { address, headers: own, secrets, body, .. } = &*webhook;
        let mut headers = HeaderMap::with_capacity(own.len() + 6);
        let content = match body {
            Body::Envelope => envelope(&mut self.lines, delivery),
            Body::Payload => {
                headers.extend(body::facts(delivery));
                content(Vec::new(), payload(delivery), Vec::new())
            }
            Body::Template(parts) => content(body::written(parts, delivery)?, Bytes::new(), Vec::new()),
        };
        if let Some((store, epoch)) = delivery.owner() {
            headers.insert(TICKWHEEL_STORE, HeaderValue::from_str(store).expect("hex"));
            headers.insert(TICKWHEEL_EPOCH, HeaderValue::from(epoch));
        }
        let is_json = !matches!(body, Body::Payload) || delivery.body.is_json();
        let content_type = if is_json { "application/json" } else { "application/octet-stream" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tickwheel/", env!("CARGO_PKG_VERSION"))));
        for name in own.keys() {
            headers.remove(name);
        }
        headers.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        // If the operator has set this header, the operator's value counts.
        if let Some(traceparent) = delivery.traceparent().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.entry(TRACEPARENT).or_insert(traceparent);
        }
        let mut signature = None;
        if !secrets.is_empty() {
            let timestamp_s = (SystemWallTime.now_us() / 1_000_000).to_string();
            let (before, after) = (content.first_ref(), content.last_ref());
            let made = signatures(secrets, &id, &timestamp_s, &[before.first_ref(), before.last_ref(), after]);
            headers.insert(WEBHOOK_SIGNATURE, made.clone());
            signature = Some(made);
            headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from_str(&timestamp_s).expect("digits"));
            headers.insert(WEBHOOK_ID, id_value.clone());
        }
        headers.insert(IDEMPOTENCY_KEY, id_value);
        let mut request = Request::post(address.uri().clone()).body(Full::new(content)).expect("it has an address");
        *request.headers_mut() = headers;
        Ok((client, request, Sent { webhook, signature }))
    }

    /// # Errors
    /// The reason, if there is none.
    fn webhook_for(&mut self, delivery: &Delivery) -> Result<(Arc<Webhook>, Requests), String> {
        let share = delivery.body.share();
        let (Some(settings), true) = (&delivery.to, share != 0) else {
            let own = self.webhook.as_ref().filter(|_| share == 0).map(|it| (it.current(), self.own.clone()));
            return own.ok_or_else(|| "its destination was removed".to_owned());
        };
        if let Some((_, webhook, client)) = self.named.get(&share).filter(|(of, ..)| Arc::ptr_eq(of, settings)) {
            return Ok((webhook.clone(), client.clone()));
        }
        let webhook = Arc::new(webhook_of(settings).map_err(|error| error.to_string())?);
        let (connect, usual) = &self.to_named;
        // Its own connections too: what one destination trusts is not trusted by another.
        let client = webhook.trusted.as_ref().map_or_else(|| usual.clone(), |it| client(connect.trusting(it.clone())));
        if self.named.len() >= MOST_KNOWN {
            self.named.clear(); // each is made again for its next send
        }
        self.named.insert(share, (settings.clone(), webhook.clone(), client.clone()));
        Ok((webhook, client))
    }

    fn command(&self, command: Command) -> Result<(), DeliveryError> {
        let sent = self.to_thread.as_ref().is_some_and(|thread| thread.send(command).is_ok());
        if sent { Ok(()) } else { Err(DeliveryError::Failed("the thread of the webhooks has ended".to_owned())) }
    }
}

impl ReplySink for HttpSink {
    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn max_bytes(&self) -> usize {
        16 << 20
    }

    fn spare(&self) -> usize {
        SPARE
    }

    fn named(&self, allowed: &Allowed, final_statuses: &[u16], proxy: Option<&Proxy>) -> TakesNamed {
        let (allowed, final_statuses, proxy) = (allowed.clone(), final_statuses.to_owned(), proxy.cloned());
        let _ = self.given.set(Known { allowed, final_statuses, proxy }); // it is asked once
        if self.webhook.is_some() { TakesNamed::Some } else { TakesNamed::All }
    }

    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        if delivery.to.as_ref().is_some_and(|to| to.function) {
            let reason = "the destination is a function, and this process has none of its name".to_owned();
            reply.settle(Verdict::Unreachable { reason, retry_after_ms: None });
            return Ok(());
        }
        match self.request(&delivery) {
            Ok(request) => self.command(Command::Post(Box::new(request), reply)),
            Err(reason) => {
                reply.settle(Verdict::Final(reason));
                Ok(())
            }
        }
    }

    fn abort(&mut self, number: u64) {
        let _ = self.command(Command::Abort(number)); // if the thread has ended, so has the request
    }

    /// Closes all connections, and aborts the requests in flight.
    fn close(&mut self) -> Result<(), DeliveryError> {
        self.to_thread = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(DeliveryError::Failed("the thread of the webhooks has panicked".to_owned())),
            _ => Ok(()),
        }
    }
}

impl Drop for HttpSink {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// The value of the header. It is equal for messages with the same `(key, id)`, because they are the same message (D1).
/// `again` makes it different if the name is used again after an outcome.
pub(crate) fn idempotency_key(key: Option<&str>, id: &str, again: Option<i64>) -> String {
    let mut text = Vec::with_capacity(id.len() + 32);
    text.push(b'[');
    match key {
        Some(key) => write_text(&mut text, key),
        None => text.extend_from_slice(b"null"),
    }
    text.push(b',');
    write_text(&mut text, id);
    if let Some(again) = again {
        text.push(b',');
        text.extend_from_slice(itoa::Buffer::new().format(again).as_bytes());
    }
    text.push(b']');
    Params::new().hash_length(16).hash(&text).to_hex().to_string()
}

/// What the settings of a named destination mean.
///
/// # Errors
/// [`DeliveryError::Usage`]: what is wrong with them. It shows no secret.
pub(crate) fn webhook_of(settings: &NamedSettings) -> Result<Webhook, DeliveryError> {
    let pem = Some(&settings.certificates).filter(|pem| !pem.is_empty());
    let trusted = pem.map(|pem| Trusted::parse(pem)).transpose()?;
    let webhook = Webhook { body: Body::of(&settings.body)?, trusted, ..Webhook::to(&settings.url)? };
    let mut headers = settings.headers.iter();
    let webhook = headers.try_fold(webhook, |webhook, (name, value)| webhook.with_header(name, value))?;
    if webhook.headers.keys_len() < webhook.headers.len() {
        let text = "headers has a name twice, in another case: a destination sends each header once";
        return Err(DeliveryError::Usage(text.to_owned()));
    }
    settings.secrets.iter().flatten().try_fold(webhook, |webhook, secret| webhook.with_secret(secret))
}

fn most_in_flight() -> usize {
    use rustix::process::{Resource, getrlimit};
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let spare = (files / 3).min(SPARE as u64);
    let free = files.saturating_sub(OTHER_FILES + spare).max(files / 4);
    IN_FLIGHT.min(usize::try_from(free).unwrap_or(usize::MAX))
}

fn client(connect: Connect) -> Requests {
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connect)
}

/// Does what the sink asks, until it is closed.
async fn receive(mut commands: UnboundedReceiver<Command>, given: Given) {
    let posts: Rc<RefCell<FxHashMap<u64, AbortHandle>>> = Rc::default();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Post(request, reply) => {
                let (number, ended, given) = (reply.number(), posts.clone(), given.clone());
                let post = spawn_local(async move {
                    let (client, request, sent) = *request;
                    let verdict = post(&client, request, &sent, given.get().map_or(&[], |it| &it.final_statuses)).await;
                    ended.borrow_mut().remove(&number);
                    reply.settle(verdict);
                });
                posts.borrow_mut().insert(number, post.abort_handle());
            }
            Command::Abort(number) => {
                if let Some(post) = posts.borrow_mut().remove(&number) {
                    post.abort();
                }
            }
        }
    }
}

async fn post(client: &Requests, request: Request<Full<Content>>, sent: &Sent, final_statuses: &[u16]) -> Verdict {
    match client.request(request).await {
        Ok(response) => answers::verdict_of(response, sent, final_statuses).await,
        Err(error) => answers::verdict_without(&error),
    }
}

#[cfg(test)]
mod tests;
