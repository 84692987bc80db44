#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::testing::{Delivering, LONG, many, put, settings, wait_until};
use crate::Clock;
use crate::delivery::clock::SystemWallTime;
use crate::delivery::dispatcher::Event;
use crate::delivery::engine::{Engine, Settings};
use crate::delivery::error::DeliveryError;
use crate::delivery::items::Item;
use crate::delivery::sinks::{Delivery, OpenSink, Sink, Verdicts};
use crate::delivery::store::owner::Ownership;
use crate::sync::PlainMutex;

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

/// Sends one after another; the message `slow` waits until the test ends it.
struct InTurn {
    arrived: Arc<AtomicUsize>,
    end: Arc<PlainMutex<Receiver<()>>>,
}

impl Sink for InTurn {
    fn is_in_turn(&self) -> bool {
        true
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        assert_eq!(deliveries.len(), 1);
        if deliveries[0].body.id() == "slow" {
            let _ = self.end.lock().recv_timeout(LONG);
        }
        self.arrived.fetch_add(1, Ordering::SeqCst);
        Ok(Verdicts::Delivered)
    }
}

#[test]
fn one_that_takes_long_holds_up_no_other_of_its_group__d4() {
    let (send, receive) = channel();
    let (arrived, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(PlainMutex::new(receive)));
    let count = arrived.clone();
    let open = move |_: &str| Ok(Box::new(InTurn { arrived: count.clone(), end: end.clone() }) as Box<dyn Sink>);
    let delivering = Delivering::start(settings(), Arc::new(open));
    let mut items = many(200);
    items.insert(3, put(None, "slow", 4));
    delivering.submit(items);
    wait_until("all others", || arrived.load(Ordering::SeqCst) == 200);
    drop::<Sender<()>>(send);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 201);
}
