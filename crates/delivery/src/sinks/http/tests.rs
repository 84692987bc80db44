//! Tests with a receiver on this machine, which answers as each test says.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Answers, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod inside;
mod named;
mod proxy;

use super::*;
use crate::base::sync::Mutex;
use crate::due::retry::Retry;
use crate::message::{Body, Extras, Message};
use crate::run::settings::Settings;
use crate::scenarios::testing::{Delivering, LONG, many, put, settings, spawn, wait_until};
use crate::sinks::{OpenSink, Opened, Replies};

/// A request as it arrived.
#[derive(Clone, Debug)]
struct Post {
    head: String,
    headers: HashMap<String, String>,
    body: String,
    /// How many requests came before on this connection.
    before: usize,
}

impl Post {
    fn id(&self) -> String {
        serde_json::from_str::<serde_json::Value>(&self.body).unwrap()["id"].as_str().unwrap().to_owned()
    }
}

type Answer = Arc<dyn Fn(&Post, &mut TcpStream) -> bool + Send + Sync>;

/// A server with a thread for each connection. `answer` writes the answer, and returns whether the connection is kept.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
    connections: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    fn new(answer: impl Fn(&Post, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::at(&"127.0.0.1:0".parse().unwrap(), answer)
    }

    fn at(address: &SocketAddr, answer: impl Fn(&Post, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (posts, connections, is_over) = (Arc::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let answer: Answer = Arc::new(answer);
        let thread = spawn({
            let (posts, connections, is_over) = (Arc::clone(&posts), connections.clone(), Arc::clone(&is_over));
            move || serve(&listener, &answer, &posts, &connections, &is_over)
        });
        Self { address, posts, connections, is_over, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}/hooks/in?token=t%20t", self.address)
    }

    fn ids(&self) -> Vec<String> {
        self.posts.lock().iter().map(Post::id).collect()
    }

    fn count(&self) -> usize {
        self.posts.lock().len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(
    listener: &TcpListener,
    answer: &Answer,
    posts: &Arc<Mutex<Vec<Post>>>,
    connections: &AtomicUsize,
    is_over: &Arc<AtomicBool>,
) {
    let mut open: Vec<TcpStream> = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        connections.fetch_add(1, Ordering::SeqCst);
        open.push(stream.try_clone().unwrap());
        let (answer, posts) = (answer.clone(), posts.clone());
        spawn(move || converse(stream, &answer, &posts));
    }
    for stream in open {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

fn converse(mut stream: TcpStream, answer: &Answer, posts: &Mutex<Vec<Post>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for before in 0.. {
        let Some(post) = read_post(&mut reader, before) else { return };
        posts.lock().push(post.clone());
        if !answer(&post, &mut stream) {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn read_post(reader: &mut BufReader<TcpStream>, before: usize) -> Option<Post> {
    let mut head = String::new();
    if reader.read_line(&mut head).ok()? == 0 {
        return None;
    }
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Post { head: head.trim_end().to_owned(), headers, body: String::from_utf8(body).unwrap(), before })
}

fn reply(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) -> bool {
    let mut out = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    stream.write_all(&out).is_ok()
}

fn ok(_: &Post, stream: &mut TcpStream) -> bool {
    reply(stream, 200, "", b"")
}

/// Waits until the client has closed the connection.
fn hang(stream: &mut TcpStream) -> bool {
    let _ = stream.read(&mut [0]);
    false
}

fn sink(url: &str) -> HttpSink {
    HttpSink::open(Some(Webhook::to(url).unwrap().into())).unwrap()
}

fn opener(url: &str) -> OpenSink {
    let webhook = SharedWebhook::from(Webhook::to(url).unwrap());
    Arc::new(move |_| Ok(Opened::ReplySink(Box::new(HttpSink::open(Some(webhook.clone()))?))))
}

struct Told(Sender<(u64, Verdict)>);

impl Replies for Told {
    fn settle(&self, number: u64, verdict: Verdict) {
        let _ = self.0.send((number, verdict));
    }
}

fn delivery(key: Option<&str>, id: &str, payload: &[u8]) -> Delivery {
    let body = Body::new(key, id, payload, false);
    Delivery::from_parts(Message::from_parts(body, 1, None), 1, 2, 1_000, 3, true)
}

fn started(sink: &mut HttpSink, deliveries: Vec<Delivery>) -> Answers<(u64, Verdict)> {
    let (sender, answers) = channel();
    let told = Arc::new(Told(sender));
    for (number, delivery) in deliveries.into_iter().enumerate() {
        sink.start(delivery, Reply::new(number as u64, told.clone())).unwrap();
    }
    answers
}

fn verdict(sink: &mut HttpSink) -> Verdict {
    started(sink, vec![delivery(None, "a", b"")]).recv_timeout(LONG).unwrap().1
}

fn text(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Refused(reason)
        | Verdict::Final(reason)
        | Verdict::Unanswered { reason, .. }
        | Verdict::Unreachable { reason, .. } => reason,
        _ => panic!("{verdict:?}"),
    }
}

#[test]
fn the_request_is_what_the_file_sink_writes__d10() {
    let receiver = Receiver::new(ok);
    let sent = delivery(Some("k\r\n"), "nul\0 \"é", b"\xff\x00");
    assert_eq!(
        started(&mut sink(&receiver.url()), vec![sent.clone()]).recv_timeout(LONG).unwrap().1,
        Verdict::Delivered
    );
    let post = receiver.posts.lock()[0].clone();
    let mut line = Vec::new();
    LineWriter::default().write(&mut line, &sent);
    assert_eq!(post.body.as_bytes(), line);
    assert_eq!(post.head, "POST /hooks/in?token=t%20t HTTP/1.1");
    assert_eq!(post.headers["content-type"], "application/json");
    assert_eq!(post.headers["user-agent"], format!("tickwheel/{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(post.headers["host"], receiver.address.to_string());
    assert_eq!(post.headers["idempotency-key"], idempotency_key(Some("k\r\n"), "nul\0 \"é", None));
    assert_eq!(post.headers.len(), 5, "{:?}", post.headers);
}

#[test]
fn a_large_payload_goes_out_from_the_message_in_memory_without_a_copy__d8() {
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    let mut sent = delivery(Some("k"), "a", b"");
    sent.message.body = Body::new(Some("k"), "a", payload.as_bytes(), true);
    let made = envelope(&mut LineWriter::default(), &sent);
    assert_eq!(made.first_ref().last_ref().as_ptr(), sent.body.payload().as_ptr());
    assert_eq!(body::payload(&sent).as_ptr(), sent.body.payload().as_ptr());
    let receiver = Receiver::new(ok);
    let mut sink = sink(&receiver.url());
    let answers = started(&mut sink, vec![sent.clone()]);
    assert_eq!(answers.recv_timeout(LONG).unwrap().1, Verdict::Delivered);
    let mut line = Vec::new();
    LineWriter::default().write(&mut line, &sent);
    assert!(receiver.posts.lock()[0].body.as_bytes() == line);
}

#[test]
fn the_receiver_gets_the_traceparent_of_the_message__d15() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let receiver = Receiver::new(ok);
    let mut sent = delivery(None, "a", b"1");
    let extras = Extras { traceparent: Some(parent.into()), ..Extras::default() };
    sent.message.body = sent.message.body.with_extras(extras);
    started(&mut sink(&receiver.url()), vec![sent]).recv_timeout(LONG).unwrap();
    assert_eq!(receiver.posts.lock()[0].headers["traceparent"], parent);
}

#[test]
fn what_replaces_a_webhook_is_for_the_next_request__d12() {
    let receiver = Receiver::new(ok);
    let with = |value| Webhook::to(&receiver.url()).unwrap().with_header("x-a", value).unwrap();
    let webhook = SharedWebhook::from(with("old"));
    let mut sink = HttpSink::open(Some(webhook.clone())).unwrap();
    assert_eq!(verdict(&mut sink), Verdict::Delivered);
    webhook.replace(with("new")).unwrap();
    assert_eq!(verdict(&mut sink), Verdict::Delivered);
    let elsewhere = Webhook::to("http://example.org/").unwrap();
    assert!(
        matches!(webhook.replace(elsewhere), Err(DeliveryError::Usage(text)) if text.contains("keeps its address"))
    );
    assert_eq!(verdict(&mut sink), Verdict::Delivered);
    let sent: Vec<_> = receiver.posts.lock().iter().map(|post| post.headers["x-a"].clone()).collect();
    assert_eq!(sent, ["old", "new", "new"]);
}

#[test]
fn a_repeat_has_the_same_idempotency_key_and_nothing_else_has__d10() {
    let names =
        [(Some("a"), "b"), (None, "b"), (Some(""), "b"), (Some("ab"), ""), (Some("a"), "b\""), (Some("a\",\"b"), "c")];
    let mut keys: Vec<String> = names.iter().map(|(key, id)| idempotency_key(*key, id, None)).collect();
    assert_eq!(keys[0], idempotency_key(Some("a"), "b", None));
    assert!(keys.iter().all(|key| key.len() == 32));
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), names.len());
    // These values are older than the Rust code. They must not change, so that a receiver still knows its messages.
    assert_eq!(idempotency_key(None, "a1", None), "a40b598f5dc65bb1e6e91c016214cfa1");
    let again = |number| idempotency_key(None, "a1", Some(number));
    assert!(again(1) != again(2) && again(1) != idempotency_key(None, "a1", None), "a name that is used again");
}

#[test]
fn each_status_has_its_verdict_with_what_was_said__d6() {
    let receiver = Receiver::new(|post, stream| {
        let status = post.id().parse().unwrap();
        reply(stream, status, "Retry-After: 7\r\nLocation: /elsewhere\r\n", b"sch\xc3\xb6n\n\x1b[31m")
    });
    let mut sink = sink(&receiver.url());
    sink.named(&Allowed::default(), &[403, 429], None);
    let statuses = [
        403, 410, 200, 201, 202, 299, 301, 302, 307, 308, 400, 401, 404, 409, 413, 408, 425, 429, 500, 501, 502, 503,
        599,
    ];
    for status in statuses {
        let sent = vec![delivery(None, &status.to_string(), b"")];
        let verdict = started(&mut sink, sent).recv_timeout(LONG).unwrap().1;
        let what = if status < 400 { ", a redirect, which is not followed" } else { "" };
        let reason = format!("status {status}{what}: schön  [31m");
        let expected = match status {
            200..=299 => Verdict::Delivered,
            500 | 501 => Verdict::Failed { reason, retry_after_ms: Some(7_000) },
            403 | 410 | 429 => Verdict::Final(reason),
            408 | 425 | 502.. => Verdict::Unanswered { reason, retry_after_ms: Some(7_000) },
            _ => Verdict::Refused(reason),
        };
        assert_eq!(verdict, expected);
    }
    assert_eq!(receiver.count(), statuses.len(), "no redirect is followed, and nothing is tried twice by the sink");
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 1, "the connection is kept");
}

#[test]
fn a_status_that_comes_without_a_text_says_so__d6() {
    for text in [&b""[..], b" \r\n"] {
        let receiver = Receiver::new(move |_, stream| reply(stream, 409, "", text));
        assert_eq!(verdict(&mut sink(&receiver.url())), Verdict::Refused("status 409, without a text".to_owned()));
    }
}

#[test]
fn a_connection_that_the_receiver_closed_is_opened_anew__d10() {
    let receiver = Receiver::new(|_, stream| {
        reply(stream, 200, "Connection: close\r\n", b"");
        false
    });
    let mut sink = sink(&receiver.url());
    for _ in 0..5 {
        assert_eq!(verdict(&mut sink), Verdict::Delivered);
    }
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 5);
}

#[test]
fn an_endless_answer_is_not_read_to_its_end__d8() {
    let receiver = Receiver::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 8_192]).is_ok() {}
        false
    });
    let mut sink = sink(&receiver.url());
    let began = Instant::now();
    assert_eq!([verdict(&mut sink), verdict(&mut sink)], [Verdict::Delivered, Verdict::Delivered]);
    assert!(began.elapsed() < LONG / 4);
}

#[test]
fn a_status_counts_whatever_becomes_of_the_rest__d5() {
    for (status, is_cut) in [(200, true), (200, false), (409, true), (409, false)] {
        let receiver = Receiver::new(move |_, stream| {
            let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 1000\r\n\r\nhalf").as_bytes());
            if is_cut { false } else { hang(stream) }
        });
        let verdict = verdict(&mut sink(&receiver.url()));
        match status {
            200 => assert_eq!(verdict, Verdict::Delivered),
            _ => assert_eq!(verdict, Verdict::Refused("status 409: half".to_owned())),
        }
    }
}

#[test]
fn a_server_that_closes_the_connection_in_the_middle_gave_no_answer__d6() {
    for said in
        [&b""[..], b"HTTP/1.1 200 OK\r\nX-Half: ", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\0\xff"]
    {
        let receiver = Receiver::new(move |_, stream| {
            let _ = stream.write_all(said);
            false
        });
        let verdict = verdict(&mut sink(&receiver.url()));
        assert!(matches!(verdict, Verdict::Unanswered { retry_after_ms: None, .. }), "{verdict:?}");
        assert!(!text(&verdict).contains("token"), "{verdict:?}");
        assert_eq!(receiver.count(), 1);
    }
}

#[test]
fn what_nothing_can_be_told_to_is_unreachable_and_no_secret_is_told__d6() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let without_tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = without_tls.local_addr().unwrap().port();
    let thread = spawn(move || {
        let mut stream = without_tls.accept().unwrap().0;
        let _ = stream.write_all(b"HTTP/1.1 400 no TLS here\r\n\r\n");
        hang(&mut stream);
    });
    for (url, why) in [
        (format!("http://{closed}/s3cret?s3cret"), "onnection refused"),
        ("http://nothing.invalid/s3cret?s3cret".to_owned(), "lookup"),
        (format!("https://127.0.0.1:{port}/s3cret?s3cret"), "does not speak TLS at this port"),
    ] {
        let verdict = verdict(&mut sink(&url));
        assert!(matches!(verdict, Verdict::Unreachable { .. }), "{verdict:?}");
        assert!(text(&verdict).contains(why) && !text(&verdict).contains("s3cret"), "{verdict:?}");
    }
    thread.join().unwrap();
}

#[test]
fn an_aborted_request_ends_its_connection_and_drops_its_reply__d6() {
    let receiver = Receiver::new(|_, stream| hang(stream));
    let mut sink = sink(&receiver.url());
    let answers = started(&mut sink, vec![delivery(None, "a", b""), delivery(None, "b", b"")]);
    wait_until("two requests", || receiver.count() == 2);
    sink.abort(1);
    let (number, verdict) = answers.recv_timeout(LONG).unwrap();
    assert_eq!((number, text(&verdict)), (1, "the sink gave no answer"));
    assert!(answers.try_recv().is_err());
    sink.abort(7); // of nothing
    sink.close().unwrap();
    assert_eq!(answers.recv_timeout(LONG).unwrap().0, 0, "the end drops the rest");
    assert!(sink.start(delivery(None, "c", b""), Reply::new(9, Arc::new(Told(channel().0)))).is_err());
}

#[test]
fn hundreds_are_in_flight_at_a_time__d10() {
    let (waiting, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())));
    let closed = gate.lock();
    let (inside, inner_gate) = (waiting.clone(), gate.clone());
    let receiver = Receiver::new(move |_, stream| {
        inside.fetch_add(1, Ordering::SeqCst);
        drop(inner_gate.lock());
        reply(stream, 200, "", b"")
    });
    let wanted = 300.min(most_in_flight() / 2); // both ends of each connection are this process's
    let delivering = Delivering::start(settings(), opener(&receiver.url()));
    delivering.submit(many(wanted));
    wait_until("all in flight", || waiting.load(Ordering::SeqCst) == wanted);
    drop(closed);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert_eq!((summary.delivered, receiver.count()), (wanted as u64, wanted));
}

#[test]
fn a_port_that_is_closed_for_a_while_costs_no_message_and_no_order__d6() {
    let receiver = Receiver::new(ok);
    let address = receiver.address;
    let delivering = Delivering::start(settings(), opener(&receiver.url()));
    delivering.submit(vec![put(Some("k"), "first", 1)]);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    drop(receiver);
    delivering.submit(
        (0..200)
            .map(|place| put(Some(&format!("k{}", place % 10)), &place.to_string(), 1 + i64::from(place)))
            .collect(),
    );
    wait_until("an outage", || delivering.running.engine().down().is_some());
    let receiver = Receiver::at(&address, ok);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert_eq!((summary.delivered, summary.undeliverable), (201, 0));
    let outages = delivering.told.outages();
    assert_eq!(outages.len(), 2, "{outages:?}");
    assert!(outages[0].contains("onnection refused") && outages[1] == "up", "{outages:?}");
    for key in 0..10 {
        let ids: Vec<usize> = receiver.ids().iter().map(|id| id.parse().unwrap()).filter(|id| id % 10 == key).collect();
        assert_eq!(ids, (0..20).map(|place| 10 * place + key).collect::<Vec<_>>());
    }
    assert!(receiver.posts.lock().iter().all(|post| post.body.contains("\"redelivered\":false")));
}

#[test]
fn a_name_that_does_not_resolve_is_down_and_no_dead_letter__d6() {
    let delivering = Delivering::start(settings(), opener("http://nothing.invalid/"));
    delivering.submit(many(5));
    wait_until("an outage", || delivering.running.engine().down().is_some());
    assert!(delivering.told.letters().is_empty());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().not_delivered(), 5);
}

#[test]
fn a_503_with_retry_after_is_asked_again_then_and_not_before__d6() {
    let times = Arc::new(Mutex::new(HashMap::<String, Vec<Instant>>::new()));
    let kept = times.clone();
    let receiver = Receiver::new(move |post, stream| {
        let mut times = kept.lock();
        let of_this = times.entry(post.id()).or_default();
        of_this.push(Instant::now());
        if of_this.len() == 1 {
            return reply(stream, 503, "Retry-After: 1\r\n", b"busy");
        }
        reply(stream, 200, "", b"")
    });
    let delivering = Delivering::start(settings(), opener(&receiver.url()));
    delivering.submit(many(4));
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 4);
    assert_eq!(delivering.told.outages(), [""; 0], "four keys are too few for an outage");
    let times = times.lock();
    assert_eq!(times.len(), 4);
    for of_this in times.values() {
        assert_eq!(of_this.len(), 2, "each was asked twice");
        assert!(of_this[1] - of_this[0] >= Duration::from_secs(1));
    }
}

#[test]
fn a_receiver_that_hangs_is_cut_off_and_down_with_five_keys__d6() {
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = hangs.clone();
    let receiver =
        Receiver::new(
            move |_, stream| {
                if is_hanging.load(Ordering::SeqCst) { hang(stream) } else { reply(stream, 200, "", b"") }
            },
        );
    let delivering = Delivering::start(Settings { sink_timeout_ms: 200, ..settings() }, opener(&receiver.url()));
    delivering.submit(many(5));
    wait_until("an outage", || delivering.running.engine().down().is_some());
    hangs.store(false, Ordering::SeqCst);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 5);
    assert_eq!(delivering.told.outages(), ["no answer in time", "up"]);
}

#[test]
fn a_poisonous_message_among_a_thousand_good_ones_stops_nothing__d6() {
    let receiver = Receiver::new(|post, stream| {
        if post.id() == "poison" { reply(stream, 422, "", b"I choke") } else { reply(stream, 200, "", b"") }
    });
    let delivering = Delivering::start(settings(), opener(&receiver.url()));
    let mut items = many(1_000);
    items.insert(500, put(None, "poison", 1));
    delivering.submit(items);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert_eq!((summary.delivered, summary.undeliverable), (1_000, 1));
    assert_eq!(delivering.told.outages(), [""; 0]);
    assert_eq!(receiver.ids().iter().filter(|id| *id == "poison").count(), 3);
    let letters = delivering.told.letters();
    assert!(letters.len() == 1 && letters[0].reason.contains("status 422: I choke"), "{letters:?}");
}

#[test]
fn a_server_that_closes_connections_in_the_middle_gets_each_message_again__d6() {
    let receiver = Receiver::new(|post, stream| post.before != 3 && reply(stream, 200, "", b""));
    let retry = Retry { max_attempts: 50, ..settings().retry };
    // Few at a time, so that each connection gets four messages. Otherwise 500 messages would go over hundreds of
    // connections.
    let settings = Settings { retry, concurrency: 4, ..settings() };
    let delivering = Delivering::start(settings, opener(&receiver.url()));
    delivering.submit(many(500));
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 500);
    let mut ids = receiver.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 500);
    assert!(receiver.count() > 500);
}

#[test]
fn a_receiver_that_echoes_the_request_shows_no_secret_in_logs_and_dead_letters__d12() {
    let receiver = Receiver::new(|post, stream| {
        let echo = ["authorization", "webhook-signature", "x-other"].map(|name| &post.headers[name]);
        match &*post.id() {
            "0" => reply(stream, 400, "", format!("{}\n{echo:?}", post.head).as_bytes()),
            _ => reply(stream, 422, "", &serde_json::to_vec(&(&echo, &post.head)).unwrap()),
        }
    });
    let webhook = Webhook::to(&receiver.url())
        .and_then(|it| it.with_header("Authorization", "Bearer s3cret/token+1"))
        .and_then(|it| it.with_header("x-other", "s3cret \"quoted\""))
        .and_then(|it| it.with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
        .unwrap();
    let webhook = SharedWebhook::from(webhook);
    let opener: OpenSink = Arc::new(move |_| Ok(Opened::ReplySink(Box::new(HttpSink::open(Some(webhook.clone()))?))));
    let delivering = Delivering::start(settings(), opener);
    delivering.submit(many(2));
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().undeliverable, 2);
    let (events, letters) = (delivering.told.events(), delivering.told.letters());
    assert_eq!((events.len(), letters.len()), (2, 2));
    let told = format!("{events:?} {letters:?}");
    for status in ["status 400: its text holds a secret", "status 422: its text holds a secret"] {
        assert!(told.contains(status), "{told}");
    }
    let signature = &receiver.posts.lock()[0].headers["webhook-signature"];
    for secret in ["s3cret", "quoted", "token+1", "hooks", "t%20t", &signature[3..]] {
        assert!(!told.contains(secret), "{secret} is in {told}");
    }
}
