//! Tests of a rate and of a limit for sends at a time (D18), with the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::run::settings::Settings;
use crate::scenarios::testing::{Delivering, LONG, many, put, settings, spawn, wait_until};
use crate::sinks::{Delivery, OpenSink, Opened, Sink, Verdicts};

/// How many sends there are, how many there were at most at a time, and how many sinks.
#[derive(Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
    sinks: AtomicUsize,
}

/// Sends one message in each call, and waits for `may_end`.
struct Counted {
    counts: Arc<Counts>,
    may_end: Arc<dyn Fn() + Send + Sync>,
}

impl Sink for Counted {
    fn is_alone(&self) -> bool {
        true
    }

    fn max_messages(&self) -> usize {
        1
    }

    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let now = self.counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.most.fetch_max(now, Ordering::SeqCst);
        (self.may_end)();
        self.counts.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Verdicts::Delivered)
    }
}

fn counted(may_end: impl Fn() + Send + Sync + 'static) -> (OpenSink, Arc<Counts>) {
    let (counts, may_end) = (Arc::<Counts>::default(), Arc::new(may_end));
    let seen = counts.clone();
    let open = move |_: &str| {
        counts.sinks.fetch_add(1, Ordering::SeqCst);
        Ok(Opened::Sink(Box::new(Counted { counts: counts.clone(), may_end: may_end.clone() })))
    };
    (Arc::new(open), seen)
}

#[test]
fn no_more_sends_at_a_time_than_the_concurrency_and_no_more_sinks__d18() {
    let (end, may_end) = channel();
    let may_end = Mutex::new(may_end);
    let (open, seen) = counted(move || may_end.lock().recv_timeout(LONG).expect("the test ends it"));
    let delivering = Delivering::start(Settings { concurrency: 2, ..settings() }, open);
    delivering.submit(many(6));
    for _ in 0..5 {
        wait_until("two sends", || seen.now.load(Ordering::SeqCst) == 2);
        end.send(()).unwrap();
    }
    end.send(()).unwrap();
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 6);
    assert_eq!((seen.most.load(Ordering::SeqCst), seen.sinks.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn a_call_that_was_cut_off_keeps_its_place_until_it_returns__d6_d18() {
    let (end, may_end) = channel::<()>();
    let (may_end, sends) = (Mutex::new(may_end), Arc::<AtomicUsize>::default());
    let begun = sends.clone();
    let (open, seen) = counted(move || {
        if begun.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = may_end.lock().recv_timeout(LONG);
        }
    });
    let delivering = Delivering::start(Settings { concurrency: 1, sink_timeout_ms: 50, ..settings() }, open);
    delivering.submit(many(3));
    wait_until("a cut-off", || delivering.told.events().iter().any(|it| matches!(it, Event::CutOff { .. })));
    assert_eq!(sends.load(Ordering::SeqCst), 1, "the limit is a hard one");
    drop(end);
    wait_until("all", || delivering.running.engine().is_empty());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 3);
    assert_eq!(seen.most.load(Ordering::SeqCst), 1);
}

#[test]
fn senders_wait_for_the_rate_without_polling_and_send_all__d18() {
    let (open, seen) = counted(|| ());
    let rate = Some(Rate { messages: 50, per_us: 1_000_000 }); // a burst of five
    let began = Instant::now();
    let delivering = Delivering::start(Settings { rate, ..settings() }, open);
    delivering.submit(many(20));
    wait_until("all", || delivering.running.engine().is_empty());
    assert!(began.elapsed() >= Duration::from_millis(300), "fifteen tokens take that: {:?}", began.elapsed());
    assert!(seen.most.load(Ordering::SeqCst) <= 4);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 20);
}

#[test]
fn a_close_does_not_wait_for_the_rate__d18() {
    let (open, _) = counted(|| ());
    let rate = Some(Rate { messages: 1, per_us: 3_600_000_000 });
    let delivering = Delivering::start(Settings { rate, ..settings() }, open);
    delivering.submit(many(3));
    wait_until("the first", || delivering.running.engine().summary().delivered == 1);
    let summary = delivering.running.close(None).unwrap();
    assert_eq!((summary.delivered, summary.not_delivered()), (1, 2));
}

/// Customers whose key begins with `bad` do not answer until the end.
struct Neighbours {
    may_end: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
    calls: Arc<Counts>,
    spare: usize,
}

fn neighbours(spare: usize) -> (OpenSink, Arc<Counts>, Sender<()>) {
    let (end, may_end) = channel();
    let (may_end, calls) = (Arc::new(Mutex::new(may_end)), Arc::<Counts>::default());
    let counts = calls.clone();
    let open = move |_: &str| {
        counts.sinks.fetch_add(1, Ordering::SeqCst);
        let sink = Neighbours { may_end: may_end.clone(), calls: counts.clone(), spare };
        Ok(Opened::Sink(Box::new(sink)))
    };
    (Arc::new(open), calls, end)
}

impl Sink for Neighbours {
    fn max_messages(&self) -> usize {
        1
    }

    fn threads(&self) -> usize {
        2
    }

    fn spare(&self) -> usize {
        self.spare
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let now = self.calls.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.calls.most.fetch_max(now, Ordering::SeqCst);
        if deliveries[0].key().is_some_and(|key| key.starts_with("bad")) {
            let _ = self.may_end.lock().recv_timeout(LONG);
        }
        self.calls.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Verdicts::Delivered)
    }
}

#[test]
fn customers_that_hang_take_spare_places_and_the_others_go_on__d6_d18() {
    let (open, calls, end) = neighbours(6);
    let delivering = Delivering::with_threads(1, settings(), open);
    delivering.submit((0..6).map(|bad| put(Some(&format!("bad {bad}")), &bad.to_string(), 1)).collect());
    delivering.submit((0..200).map(|good| put(Some(&format!("good {good}")), &good.to_string(), 2)).collect());
    wait_until("all good ones", || delivering.running.engine().summary().delivered == 200);
    assert_eq!(calls.now.load(Ordering::SeqCst), 6);
    drop(end);
    wait_until("the bad ones", || delivering.running.engine().is_empty());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 206);
    assert!(calls.most.load(Ordering::SeqCst) <= 8 && calls.sinks.load(Ordering::SeqCst) <= 8);
}

/// Calls that never return hold all places, or all spare ones, and the next message of their keys is due.
#[test]
fn the_end_waits_for_no_call_that_was_cut_off__d6_d13() {
    for concurrency in [1, usize::MAX] {
        let (open, _, end) = neighbours(2);
        let settings = Settings { sink_timeout_ms: 50, concurrency, ..settings() };
        let delivering = Arc::new(Delivering::with_threads(1, settings, open));
        delivering.submit((0..6).map(|bad| put(Some(&format!("bad {}", bad % 2)), &bad.to_string(), 1)).collect());
        wait_until("a cut-off", || delivering.told.events().iter().any(|it| matches!(it, Event::CutOff { .. })));
        wait_until("a message that waits for a place", || {
            delivering.running.engine().lock_dispatcher().waits_for_place()
        });
        let closing = delivering.clone();
        let closed = spawn(move || closing.running.close(None));
        wait_until("the end", || closed.is_finished());
        assert_eq!(closed.join().unwrap().unwrap().delivered, 0);
        drop(end);
    }
}

/// Files and brokers: two writers would mix their lines, or their positions.
#[test]
fn a_destination_with_one_writer_has_one_whatever_the_settings_say__d10_d18() {
    let (end, may_end) = channel::<()>();
    let may_end = Mutex::new(may_end);
    let (open, seen) = counted(move || assert!(may_end.lock().recv_timeout(LONG).is_err()));
    let settings = Settings { concurrency: 4, spare: Some(2), ..settings() };
    let delivering = Delivering::with_threads(1, settings, open);
    assert_eq!(delivering.running.engine().places().spare, 0);
    delivering.submit(many(6));
    wait_until("a send", || seen.now.load(Ordering::SeqCst) == 1);
    drop(end);
    wait_until("all", || delivering.running.engine().is_empty());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 6);
    assert_eq!((seen.most.load(Ordering::SeqCst), seen.sinks.load(Ordering::SeqCst)), (1, 1));
}
