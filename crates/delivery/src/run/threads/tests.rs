mod faults;
mod pacing;
mod panics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::Running;
use crate::api::destination::Destination;
use crate::base::clock::SystemWallTime;
use crate::base::error::DeliveryError;
use crate::base::sync::{Condvar, Mutex};
use crate::due::dispatcher::Event;
use crate::group::items::Item;
use crate::run::engine::Engine;
use crate::run::settings::{Observer, Settings};
use crate::scenarios::testing::{Delivering, LONG, Told, letter, many, put, settings, spawn, wait_until};
use crate::sinks::{Delivery, OpenSink, Opened, Sink, SyncFn, Verdict, Verdicts};
use crate::store::Letter;
use crate::store::file::owner::Ownership;
use tickwheel::Clock;

/// A sink whose first sends wait until the test ends them.
struct Hangs {
    hanging: Arc<AtomicUsize>,
    delivered: Arc<AtomicUsize>,
    end: Arc<Mutex<Receiver<()>>>,
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
    let (end, count) = (Arc::new(Mutex::new(receive)), delivered.clone());
    let open = move |_: &str| {
        let sink = Hangs { hanging: hanging.clone(), delivered: count.clone(), end: end.clone() };
        Ok(Opened::Sink(Box::new(sink)))
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
    drop(end); // they return, and are ignored
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
    // After a failure in the middle of a ticket, the last group takes the rest of the ticket.
    let _receipt = engine.submit(looks()).unwrap();
    write();
    engine.queue.fail(&DeliveryError::Failed("the test ends it".to_owned()));
    write();
}

/// A sink whose syncs, one before each commit, wait until the test releases them.
struct SlowDisk {
    sent: Arc<AtomicUsize>,
    lets_go: Arc<Mutex<Receiver<()>>>,
}

impl Sink for SlowDisk {
    fn max_messages(&self) -> usize {
        1
    }

    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        std::thread::park_timeout(Duration::from_millis(1)); // 4,000 messages take a second
        Ok(Verdicts::Delivered)
    }

    fn sync(&self) -> Option<SyncFn> {
        let lets_go = self.lets_go.clone();
        Some(Arc::new(move || {
            let _ = lets_go.lock().recv_timeout(LONG);
            Ok(())
        }))
    }
}

fn held_up() -> (Delivering, Arc<AtomicUsize>, Sender<()>) {
    let (lets_go, receive) = channel();
    let (sent, receive) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(receive)));
    let count = sent.clone();
    let open = move |_: &str| Ok(Opened::Sink(Box::new(SlowDisk { sent: count.clone(), lets_go: receive.clone() })));
    let delivering = Delivering::start(settings(), Arc::new(open));
    delivering.submit(many(4_000));
    let engine = delivering.running.engine();
    wait_until("a pause", || engine.queue.is_behind(engine.clock().now_us()));
    (delivering, sent, lets_go)
}

#[test]
fn senders_that_wait_for_a_commit_go_on_after_it__d5() {
    let (delivering, sent, lets_go) = held_up();
    assert!(sent.load(Ordering::SeqCst) < 4_000, "not all go out while a commit hangs");
    drop(lets_go);
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 4_000);
    assert_eq!(sent.load(Ordering::SeqCst), 4_000);
}

#[test]
fn senders_that_wait_for_a_commit_send_the_rest_before_the_end__d5_d13() {
    let (delivering, sent, lets_go) = held_up();
    let delivering = Arc::new(delivering);
    let closing = delivering.clone();
    let closed = spawn(move || closing.running.close(Some(LONG)));
    wait_until("the close", || delivering.running.is_closing());
    assert!(sent.load(Ordering::SeqCst) < 4_000);
    drop(lets_go);
    assert_eq!(closed.join().unwrap().unwrap().delivered, 4_000);
}

#[test]
fn senders_that_wait_for_a_commit_end_after_a_failure__d5() {
    let (delivering, sent, lets_go) = held_up();
    delivering.running.fail(&DeliveryError::Failed("the test ends it".to_owned()));
    drop(lets_go);
    let failed = delivering.running.close(Some(LONG)).unwrap_err();
    assert_eq!(failed.to_string(), "the test ends it");
    assert!(sent.load(Ordering::SeqCst) < 4_000);
}

#[test]
fn the_end_does_not_wait_for_ever_for_a_sync_that_hangs_and_what_was_sent_is_sent_again__d5_d6() {
    let (delivering, sent_before, lets_go) = held_up();
    let late = delivering.running.engine().submit(many(4_001).split_off(4_000)).unwrap();
    assert_eq!(delivering.running.close(Some(Duration::from_millis(10))).unwrap().delivered, 0);
    assert!(late.wait(Some(LONG)).expect("it has an answer").is_err());
    // The store is free, though the first run still hangs in its sync.
    let folder = delivering.folder.clone();
    let (sent, redelivered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, marked) = (sent.clone(), redelivered.clone());
    let open = move |_: &str| Ok(Opened::Sink(Box::new(Counts { sent: count.clone(), marked: marked.clone() })));
    let again = Delivering::on(folder, settings(), Arc::new(open));
    drop(lets_go); // the first run goes on, and must not write to a store that it does not own any more
    drop(delivering);
    assert!(again.running.wait_until_empty(LONG).unwrap());
    assert_eq!(again.running.close(Some(LONG)).unwrap().delivered, 4_000);
    assert_eq!(sent.load(Ordering::SeqCst), 4_000);
    let (marked, sent_before) = (redelivered.load(Ordering::SeqCst), sent_before.load(Ordering::SeqCst));
    assert!(marked >= sent_before && sent_before > 0, "{marked} of {sent_before} were marked");
}

/// Counts the messages that arrive, and how many of them are marked.
struct Counts {
    sent: Arc<AtomicUsize>,
    marked: Arc<AtomicUsize>,
}

impl Sink for Counts {
    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        self.sent.fetch_add(deliveries.len(), Ordering::SeqCst);
        self.marked.fetch_add(deliveries.iter().filter(|it| it.redelivered).count(), Ordering::SeqCst);
        Ok(Verdicts::Delivered)
    }
}

/// An observer that hangs with its first letters, until the test ends it.
struct Deaf {
    told: Arc<AtomicUsize>,
    end: Mutex<Receiver<()>>,
}

impl Observer for Deaf {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        self.told.fetch_add(letters.len(), Ordering::SeqCst);
        let _ = self.end.lock().recv_timeout(LONG);
        Ok(())
    }

    fn events(&self, _: Vec<Event>) {}
}

#[test]
fn the_end_does_not_wait_for_ever_for_who_is_told_of_dead_letters__d13() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let own = || Ownership::take(&store, &mut |_| (), &mut || false).unwrap();
    let (sinks, _, _end) = hangs(0);
    let (end, receive) = channel();
    let told = Arc::new(AtomicUsize::new(0));
    let deaf = Deaf { told: told.clone(), end: Mutex::new(receive) };
    let observed = Settings { observer: Arc::new(deaf), ..settings() };
    let running = Running::open(own(), observed, sinks.clone(), 1).unwrap();
    running.start(running.engine().wall_clock());
    running.engine().submit(vec![letter()]).unwrap().wait(Some(LONG)).unwrap().unwrap();
    wait_until("the letter", || told.load(Ordering::SeqCst) == 1);
    let began = Instant::now();
    assert_eq!(running.close(Some(Duration::from_millis(10))).unwrap().dead_letters, 1);
    assert!(began.elapsed() < LONG / 2);
    // The store is free, though the first observer still hangs. The letter is given again.
    let again = Told::default();
    let observed = Settings { observer: Arc::new(again.clone()), ..settings() };
    let running = Running::open(own(), observed, sinks, 1).unwrap();
    wait_until("the letter again", || again.letters().len() == 1);
    running.close(Some(LONG)).unwrap();
    drop(end);
}

#[test]
fn a_call_of_a_function_that_takes_long_holds_up_no_other_message__d4() {
    let (send, receive) = channel();
    let (arrived, end) = (Arc::new(AtomicUsize::new(0)), Mutex::new(receive));
    let count = arrived.clone();
    let to = Destination::function(move |delivery| {
        if delivery.id() == "slow" {
            let _ = end.lock().recv_timeout(LONG);
        }
        count.fetch_add(1, Ordering::SeqCst);
        Verdict::Delivered
    });
    let delivering = Delivering::start(settings(), to.into_opener());
    let mut items = many(200);
    items.insert(3, put(None, "slow", 4));
    delivering.submit(items);
    wait_until("all others", || arrived.load(Ordering::SeqCst) == 200);
    drop::<Sender<()>>(send);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 201);
}

/// Sends one message at a time, and records the calls of `committed`. A commit waits until the test allows it.
struct Forgets {
    told: Arc<Mutex<Vec<u64>>>,
    is_syncing: Arc<AtomicBool>,
    may_sync: Arc<(Mutex<bool>, Condvar)>,
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
    let told = Arc::new(Mutex::new(Vec::new()));
    let is_syncing = Arc::new(AtomicBool::new(false));
    let may_sync = Arc::new((Mutex::new(false), Condvar::default()));
    let (its_told, its_syncing, its_may) = (told.clone(), is_syncing.clone(), may_sync.clone());
    let open = move |_: &str| {
        let (told, is_syncing, may_sync) = (its_told.clone(), its_syncing.clone(), its_may.clone());
        Ok(Opened::Sink(Box::new(Forgets { told, is_syncing, may_sync })))
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

/// Otherwise a suspend of the machine would be a step of the wall clock, which moves rules of `every`.
#[test]
fn a_running_engine_reads_the_clock_that_goes_on_during_a_suspend__d3_d19() {
    let delivering = Delivering::start(settings(), Destination::function(|_| Verdict::Delivered).into_opener());
    let clock = format!("{:?}", delivering.running.engine().clock());
    assert_eq!(clock.contains("Boottime"), Clock::boottime_us(0).is_ok(), "{clock}");
}
