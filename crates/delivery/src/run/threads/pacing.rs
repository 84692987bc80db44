//! A rate and a bound of sends at a time (D18), with the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::run::settings::Settings;
use crate::scenarios::testing::{Delivering, LONG, many, settings, wait_until};
use crate::sinks::{Delivery, OpenSink, Sink, Verdicts};

/// How many sends there are, were at a time at most, and sinks.
#[derive(Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
    sinks: AtomicUsize,
}

/// One message in each send, which waits for `may_end`.
struct Counted {
    counts: Arc<Counts>,
    may_end: Arc<dyn Fn() + Send + Sync>,
}

impl Sink for Counted {
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
        Ok(Box::new(Counted { counts: counts.clone(), may_end: may_end.clone() }) as Box<dyn Sink>)
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
fn the_only_send_that_hangs_is_cut_off_and_another_takes_its_place__d18() {
    let (end, may_end) = channel::<()>();
    let (may_end, sends) = (Mutex::new(may_end), AtomicUsize::new(0));
    let (open, _) = counted(move || {
        if sends.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = may_end.lock().recv_timeout(LONG);
        }
    });
    let delivering = Delivering::start(Settings { concurrency: 1, sink_timeout_ms: 50, ..settings() }, open);
    delivering.submit(many(3));
    wait_until("all", || delivering.running.engine().is_empty());
    assert!(delivering.told.events().iter().any(|it| matches!(it, Event::CutOff { .. })));
    drop(end);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 3);
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
