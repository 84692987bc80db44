#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::testing::{Delivering, LONG, many, settings, wait_until};
use crate::Clock;
use crate::delivery::clock::SystemWallTime;
use crate::delivery::dispatcher::Event;
use crate::delivery::engine::{Engine, Settings};
use crate::delivery::error::DeliveryError;
use crate::delivery::items::Item;
use crate::delivery::sinks::{Delivery, OpenSink, Sink, SyncFn, Verdicts};
use crate::delivery::store::owner::Ownership;
use crate::sync::{PlainCondvar, PlainMutex};

/// Its first sends wait until the test ends them.
struct Hangs {
    hanging: Arc<AtomicUsize>,
    delivered: Arc<AtomicUsize>,
    end: Arc<PlainMutex<Receiver<()>>>,
}

impl Sink for Hangs {
    fn max_messages(&self) -> usize {
        1
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let one_less = self.hanging.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if one_less.is_ok() {
            let _ = self.end.lock().recv_timeout(LONG);
        } else {
            self.delivered.fetch_add(deliveries.len(), Ordering::SeqCst);
        }
        Ok(Verdicts::Delivered)
    }
}

fn hangs(hanging: usize) -> (OpenSink, Arc<AtomicUsize>, Sender<()>) {
    let (send, receive) = channel();
    let (hanging, delivered) = (Arc::new(AtomicUsize::new(hanging)), Arc::new(AtomicUsize::new(0)));
    let (end, count) = (Arc::new(PlainMutex::new(receive)), delivered.clone());
    let open = move |_: &str| {
        let sink = Hangs { hanging: hanging.clone(), delivered: count.clone(), end: end.clone() };
        Ok(Box::new(sink) as Box<dyn Sink>)
    };
    (Arc::new(open), delivered, send)
}

#[test]
fn sends_that_hang_are_cut_off_though_each_sender_has_one__d6() {
    let (open, delivered, end) = hangs(4); // as many as there are senders
    let delivering = Delivering::start(Settings { sink_timeout_ms: 50, ..settings() }, open);
    delivering.submit(many(6));
    wait_until("six deliveries", || delivered.load(Ordering::SeqCst) == 6);
    let is_cut_off = |event: &Event| matches!(event, Event::CutOff { .. });
    wait_until("four cut-offs", || delivering.told.events().iter().filter(|event| is_cut_off(event)).count() == 4);
    drop(end); // they return, and are not heard
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 6);
}

#[test]
fn an_engine_that_is_dropped_gives_its_store_up__d9() {
    let (open, _, _end) = hangs(0);
    let delivering = Delivering::start(settings(), open);
    let folder = delivering.folder.clone();
    delivering.submit(many(1));
    drop(delivering);
    let store = folder.path().join("store.db");
    wait_until("the store", || Ownership::take(&store, &mut |_| (), &mut || false).is_ok());
}

#[test]
fn a_ticket_of_several_groups_is_not_over_after_the_first__d11() {
    let folder = tempfile::tempdir().unwrap();
    let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
    let engine = Engine::open(ownership, settings(), Clock::manual(0), Arc::new(SystemWallTime)).unwrap();
    let write = || engine.write(&|| Ok(())).unwrap();
    // Looks leave nothing that waits for delivery.
    let looks = || (0..10_000).map(|id| Item::Look { id: id.to_string(), key: None }).collect();
    let _receipt = engine.submit(looks()).unwrap();
    write();
    assert!(!engine.is_empty(), "the rest of the ticket waits");
    while write() {}
    assert!(engine.is_empty());
    // What fails in the middle of a ticket leaves the rest of it to the last group.
    let _receipt = engine.submit(looks()).unwrap();
    write();
    engine.queue.fail(&DeliveryError::Failed("the test ends it".to_owned()));
    write();
}

/// Sends one message at a time, and tells the test what it was told before each. What it was sent is on disk when the test
/// allows it.
struct Forgets {
    told: Arc<PlainMutex<Vec<u64>>>,
    is_syncing: Arc<AtomicBool>,
    may_sync: Arc<(PlainMutex<bool>, PlainCondvar)>,
}

impl Sink for Forgets {
    fn max_messages(&self) -> usize {
        1
    }

    fn committed(&mut self, sends: u64, _: bool) {
        self.told.lock().push(sends);
    }

    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        Ok(Verdicts::Delivered)
    }

    fn sync(&self) -> Option<SyncFn> {
        let (is_syncing, may_sync) = (self.is_syncing.clone(), self.may_sync.clone());
        Some(Arc::new(move || {
            is_syncing.store(true, Ordering::SeqCst);
            let mut may = may_sync.0.lock();
            while !*may {
                may = may_sync.1.wait(may);
            }
            Ok(())
        }))
    }
}

#[test]
fn a_sink_may_forget_its_own_sends_after_their_commit_however_long_that_takes__d5() {
    let told = Arc::new(PlainMutex::new(Vec::new()));
    let is_syncing = Arc::new(AtomicBool::new(false));
    let may_sync = Arc::new((PlainMutex::new(false), PlainCondvar::default()));
    let (its_told, its_syncing, its_may) = (told.clone(), is_syncing.clone(), may_sync.clone());
    let open = move |_: &str| {
        let (told, is_syncing, may_sync) = (its_told.clone(), its_syncing.clone(), its_may.clone());
        Ok(Box::new(Forgets { told, is_syncing, may_sync }) as Box<dyn Sink>)
    };
    let delivering = Delivering::with_threads(1, settings(), Arc::new(open));
    delivering.submit(many(100));
    wait_until("a commit", || is_syncing.load(Ordering::SeqCst));
    assert!(told.lock().iter().all(|sends| *sends == 0), "nothing is on disk");
    *may_sync.0.lock() = true;
    may_sync.1.notify_all();
    wait_until("all outcomes", || delivering.running.engine().summary().delivered == 100);
    delivering.submit(many(101).split_off(100));
    wait_until("the last send", || told.lock().len() == 101);
    assert_eq!(told.lock().last(), Some(&100));
    assert!(told.lock().is_sorted());
}
