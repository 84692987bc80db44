use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::message::incoming::Incoming;
use crate::message::{Body, Message};
use crate::run::settings::Settings;
use crate::scenarios::testing::{Delivering, LONG, many, put, settings, spawn, wait_until};
use crate::sinks::{Delivery, OpenSink, Opened, Reply, ReplySink, Verdict};

/// The sink's state, which a test reads and answers by.
#[derive(Default)]
struct Seen {
    started: Vec<Delivery>,
    open: Vec<(Delivery, Reply)>,
    most_open: usize,
    aborted: Vec<u64>,
    is_closed: bool,
}

#[derive(Clone)]
struct KeepsReplies {
    seen: Arc<Mutex<Seen>>,
    max_in_flight: usize,
    most_bytes: usize,
    drops_aborted: bool,
}

impl KeepsReplies {
    fn new(max_in_flight: usize) -> Self {
        Self { seen: Arc::default(), max_in_flight, most_bytes: 1 << 20, drops_aborted: true }
    }

    fn open(&self) -> OpenSink {
        let sink = self.clone();
        Arc::new(move |_| Ok(Opened::ReplySink(Box::new(sink.clone()))))
    }

    fn started(&self) -> usize {
        self.seen.lock().started.len()
    }

    /// Takes all messages in flight.
    fn take(&self) -> Vec<(Delivery, Reply)> {
        std::mem::take(&mut self.seen.lock().open)
    }

    fn take_one(&self) -> (Delivery, Reply) {
        wait_until("a delivery", || !self.seen.lock().open.is_empty());
        self.seen.lock().open.remove(0)
    }

    /// Answers all messages, until `count` messages were started.
    fn deliver(&self, count: usize) {
        wait_until("the last delivery", || {
            answer(self.take());
            self.started() >= count && self.seen.lock().open.is_empty()
        });
    }
}

impl ReplySink for KeepsReplies {
    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn max_bytes(&self) -> usize {
        self.most_bytes
    }

    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        let mut seen = self.seen.lock();
        assert!(!seen.is_closed, "nothing is started after the end");
        seen.started.push(delivery.clone());
        seen.open.push((delivery, reply));
        seen.most_open = seen.most_open.max(seen.open.len());
        Ok(())
    }

    fn abort(&mut self, number: u64) {
        let mut seen = self.seen.lock();
        seen.aborted.push(number);
        if self.drops_aborted {
            let dropped: Vec<_> = seen.open.extract_if(.., |(_, reply)| reply.number() == number).collect();
            drop(seen); // a reply takes other locks
            drop(dropped);
        }
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        self.seen.lock().is_closed = true;
        drop(self.take());
        Ok(())
    }
}

fn answer(open: impl IntoIterator<Item = (Delivery, Reply)>) {
    for (_, reply) in open {
        reply.settle(Verdict::Delivered);
    }
}

fn refused() -> Verdict {
    Verdict::Refused("no".to_owned())
}

#[test]
fn thousands_are_in_flight_and_no_more_than_the_sink_has_places__d8() {
    let sink = KeepsReplies::new(3_000);
    let delivering = Delivering::start(settings(), sink.open());
    delivering.submit(many(5_000));
    wait_until("3,000 in flight", || sink.seen.lock().open.len() == 3_000);
    // From another thread, the last message first.
    let open = sink.take();
    spawn(move || answer(open.into_iter().rev())).join().unwrap();
    sink.deliver(5_000);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(sink.seen.lock().most_open, 3_000);
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert_eq!((summary.delivered, sink.started()), (5_000, 5_000));
}

#[test]
fn no_more_bytes_are_in_flight_than_the_sink_takes__d8() {
    let sink = KeepsReplies { most_bytes: 20, ..KeepsReplies::new(100) };
    let delivering = Delivering::start(settings(), sink.open());
    delivering.submit(many(10)); // 8 bytes each
    wait_until("three in flight", || sink.seen.lock().open.len() == 3);
    sink.deliver(10);
    assert_eq!(sink.seen.lock().most_open, 3);
    delivering.running.close(Some(LONG)).unwrap();
}

#[test]
fn no_more_are_in_flight_than_the_concurrency_also_at_the_end__d18() {
    let sink = KeepsReplies::new(100);
    let delivering = Arc::new(Delivering::start(Settings { concurrency: 3, ..settings() }, sink.open()));
    delivering.submit(many(10));
    wait_until("three in flight", || sink.seen.lock().open.len() == 3);
    let closing = delivering.clone();
    let closed = spawn(move || closing.running.close(Some(LONG)));
    sink.deliver(10); // messages that are due by then are still started
    assert_eq!(sink.seen.lock().most_open, 3);
    assert_eq!(closed.join().unwrap().unwrap().delivered, 10);
}

#[test]
fn what_waits_for_the_rate_is_started_when_there_is_a_token__d18() {
    let sink = KeepsReplies::new(100);
    let rate = Some(Rate { messages: 20, per_us: 1_000_000 }); // a burst of two
    let began = Instant::now();
    let delivering = Delivering::start(Settings { rate, ..settings() }, sink.open());
    delivering.submit(many(6));
    sink.deliver(6);
    assert!(began.elapsed() >= Duration::from_millis(200), "four tokens take that: {:?}", began.elapsed());
    delivering.running.close(Some(LONG)).unwrap();
}

#[test]
fn a_key_has_one_in_flight_and_keeps_its_order__d4() {
    let sink = KeepsReplies::new(100);
    let delivering = Delivering::start(settings(), sink.open());
    let of = |place: usize| (["a", "b", "c"][place % 3], place.to_string());
    delivering.submit((0..300).map(|place| put(Some(of(place).0), &of(place).1, 1 + place as i64)).collect());
    let (first, reply) = sink.take_one();
    reply.settle(refused());
    sink.deliver(301);
    delivering.running.close(Some(LONG)).unwrap();
    let seen = sink.seen.lock();
    assert_eq!(seen.most_open, 3);
    for key in ["a", "b", "c"] {
        let ids =
            seen.started.iter().filter(|it| it.body.key() == Some(key)).map(|it| it.body.id().parse::<u32>().unwrap());
        let mut ids: Vec<u32> = ids.collect();
        if first.body.key() == Some(key) {
            assert_eq!(ids[0], ids[1]);
            ids.remove(0);
        }
        assert_eq!(ids.len(), 100);
        assert!(ids.is_sorted());
    }
}

#[test]
fn one_that_is_cut_off_keeps_its_place_until_the_sink_has_ended_it__d6() {
    let sink = KeepsReplies { drops_aborted: false, ..KeepsReplies::new(2) };
    let retry = Retry { max_attempts: 1_000, ..settings().retry };
    let delivering = Delivering::start(Settings { sink_timeout_ms: 30, retry, ..settings() }, sink.open());
    delivering.submit(many(5));
    wait_until("two aborts", || sink.seen.lock().aborted.len() == 2);
    assert_eq!(sink.started(), 2, "no place is free");
    let late = sink.take();
    let numbers: Vec<u64> = late.iter().map(|(_, reply)| reply.number()).collect();
    assert_eq!(sink.seen.lock().aborted, numbers);
    answer(late); // ignored: they are sent again
    // On a busy machine, other messages may be cut off too.
    wait_until("all and the two again", || {
        answer(sink.take());
        sink.started() >= 7 && delivering.running.engine().is_empty()
    });
    let cut_off = delivering.told.events().iter().filter(|it| matches!(it, Event::CutOff { messages: 1, .. })).count();
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert_eq!(summary.delivered, 5);
    assert!(cut_off >= 2);
}

#[test]
fn a_reply_that_is_dropped_counts_as_unanswered_and_all_of_them_as_down__d6() {
    let sink = KeepsReplies::new(100);
    let delivering = Delivering::start(settings(), sink.open());
    delivering.submit(many(20));
    wait_until("an outage", || {
        drop(sink.take());
        !delivering.told.outages().is_empty()
    });
    wait_until("an end of it", || {
        answer(sink.take());
        delivering.running.engine().is_empty()
    });
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 20);
    assert_eq!(delivering.told.outages(), ["the sink gave no answer", "up"]);
    assert!(delivering.told.letters().is_empty());
}

#[test]
fn what_is_in_flight_is_waited_for_at_the_end__d13() {
    let sink = KeepsReplies::new(100);
    let delivering = Delivering::start(settings(), sink.open());
    delivering.submit(many(10));
    wait_until("ten in flight", || sink.seen.lock().open.len() == 10);
    let running = delivering.running;
    let closing = spawn(move || running.close(Some(LONG)).unwrap());
    for _ in 0..10 {
        assert!(!closing.is_finished());
        sink.take_one().1.settle(Verdict::Delivered);
    }
    assert_eq!(closing.join().unwrap().delivered, 10);
    assert!(sink.seen.lock().is_closed);
}

#[test]
fn what_has_no_answer_in_time_at_the_end_is_aborted_and_marked_next_time__d5() {
    let sink = KeepsReplies::new(100);
    let delivering = Delivering::start(settings(), sink.open());
    delivering.submit(many(10));
    wait_until("ten in flight", || sink.seen.lock().open.len() == 10);
    sink.take_one().1.settle(Verdict::Delivered);
    let began = Instant::now();
    let summary = delivering.running.close(Some(Duration::from_millis(50))).unwrap();
    assert!(began.elapsed() < LONG / 2);
    assert_eq!((summary.delivered, summary.not_delivered()), (1, 9));
    assert!(sink.seen.lock().is_closed, "nothing is sent after the end");

    let again = KeepsReplies::new(100);
    let delivering = Delivering::on(delivering.folder, settings(), again.open());
    again.deliver(9);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 9);
    assert!(again.seen.lock().started.iter().all(|it| it.redelivered && it.attempt == 1));
}

/// The sink does not end what is cut off, so no place becomes free.
#[test]
fn the_end_waits_for_no_call_that_was_cut_off_and_leaves_what_has_no_place__d6_d13() {
    let sink = KeepsReplies { drops_aborted: false, ..KeepsReplies::new(2) };
    let delivering = Delivering::start(Settings { sink_timeout_ms: 30, ..settings() }, sink.open());
    delivering.submit(many(5));
    wait_until("two aborts", || sink.seen.lock().aborted.len() == 2);
    let began = Instant::now();
    let summary = delivering.running.close(Some(LONG)).unwrap();
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    assert_eq!((summary.delivered, summary.not_delivered(), sink.started()), (0, 5, 2));
    // Calls of the process before may go on, so their messages are marked.
    let again = KeepsReplies::new(100);
    let delivering = Delivering::on(delivering.folder, settings(), again.open());
    again.deliver(5);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 5);
    let marked = again.seen.lock().started.iter().filter(|it| it.redelivered).count();
    assert!(marked >= 2, "{marked} are marked");
}

/// The sink ends what is cut off, but only after a moment, as a webhook does.
#[test]
fn what_waits_for_the_place_of_an_aborted_send_is_sent_before_the_end__d6_d13() {
    let sink = KeepsReplies { drops_aborted: false, ..KeepsReplies::new(1) };
    let delivering = Arc::new(Delivering::start(Settings { sink_timeout_ms: 2_000, ..settings() }, sink.open()));
    delivering.submit(many(2));
    let first = sink.take_one();
    let closing = delivering.clone();
    let closed = spawn(move || closing.running.close(Some(LONG)));
    wait_until("an abort", || !sink.seen.lock().aborted.is_empty());
    drop(first);
    sink.take_one().1.settle(Verdict::Delivered);
    let summary = closed.join().unwrap().unwrap();
    assert_eq!((summary.delivered, summary.not_delivered()), (1, 1));
}

#[test]
fn a_large_message_that_waits_for_bytes_lets_small_ones_pass__d6_d8() {
    let sink = KeepsReplies { most_bytes: 100_000, ..KeepsReplies::new(100) };
    let delivering = Delivering::start(settings(), sink.open());
    let large = |id: &str| {
        let body = Body::new(Some(id), id, &vec![b'1'; 60_000], true);
        Item::Put(Incoming::of(Message { body, due_ms: 1, delay_ms: None }))
    };
    delivering.submit(["a", "b", "c", "d"].map(large).into());
    wait_until("two large ones", || sink.started() == 2);
    delivering.submit(many(10));
    wait_until("the small ones", || sink.started() == 12);
    assert!(sink.seen.lock().started[2..].iter().all(|it| it.body.key().is_none()));
    sink.deliver(14);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 14);
}
