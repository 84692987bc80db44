//! A disk that hangs, a checkpoint that hangs, a sync that takes long, many events, and a thread that dies in the middle of a change.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::super::shared::Events;
use crate::base::error::DeliveryError;
use crate::base::error::StoreError;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Event;
use crate::group::items::Item;
use crate::group::writer::Sends;
use crate::message::incoming::Origin;
use crate::message::parsed::Parsed;
use crate::message::{Cancel, Reschedule};
use crate::scenarios::testing::{ByHand, Delivering, LONG, START_MS, cancel, many, put, settings, spawn, wait_until};
use crate::sinks::{Delivery, OpenSink, Opened, Sink, SyncFn, Verdicts};
use crate::store::Checkpoints;
use crate::store::file::owner::Ownership;

struct Takes;

impl Sink for Takes {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        Ok(Verdicts::Delivered)
    }
}

fn takes() -> OpenSink {
    Arc::new(|_: &str| Ok(Opened::Sink(Box::new(Takes))))
}

fn wait_until_closed(path: &Path) {
    wait_until("the thread that waited closes the store", || {
        let mut gives_up = || true;
        Ownership::take(path, &mut |_| (), &mut gives_up).is_ok()
    });
}

#[test]
fn a_close_with_a_time_limit_does_not_wait_for_a_disk_that_hangs__d13() {
    let delivering = Delivering::start(settings(), takes());
    delivering.submit(many(3));
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    let running = Arc::new(delivering.running);
    let ((hangs, hanging), (answer, answers)) = (channel(), channel::<()>());
    let disk = spawn({
        let running = running.clone();
        move || {
            running.engine().with_store(|_| {
                hangs.send(()).unwrap();
                let _ = answers.recv_timeout(LONG);
            });
        }
    });
    hanging.recv_timeout(LONG).unwrap();
    let began = Instant::now();
    let failed = running.close(Some(Duration::from_millis(20))).unwrap_err().to_string();
    assert!(failed.contains("the disk did not answer in time"), "{failed}");
    assert!(began.elapsed() < LONG, "it waited");
    let path = delivering.folder.path().join("store.db");
    answer.send(()).unwrap();
    disk.join().unwrap();
    wait_until_closed(&path);
    let again = Delivering::on(delivering.folder.clone(), settings(), takes());
    assert!(again.running.wait_until_empty(LONG).unwrap());
    assert_eq!(again.running.close(Some(LONG)).unwrap().delivered, 0, "all of it was committed");
}

/// Answers once the test lets it, and is never cut off.
struct Hangs(Arc<Mutex<Receiver<()>>>, Sender<()>);

impl Sink for Hangs {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let _ = self.1.send(());
        let _ = self.0.lock().recv_timeout(LONG);
        Ok(Verdicts::Delivered)
    }

    fn is_cut_off(&self) -> bool {
        false
    }
}

#[test]
fn a_close_with_a_time_limit_waits_for_no_send_that_hangs_while_the_store_can_not_be_written__d6_d13() {
    let ((answer, answers), (hangs, hanging)) = (channel(), channel());
    let answers = Arc::new(Mutex::new(answers));
    let open: OpenSink = Arc::new(move |_: &str| Ok(Opened::Sink(Box::new(Hangs(answers.clone(), hangs.clone())))));
    let delivering = Delivering::start(settings(), open);
    delivering.submit(many(1));
    hanging.recv_timeout(LONG).unwrap();
    let engine = delivering.running.engine();
    engine.with_store(|store| store.fill(0));
    let refused = engine.submit(many(3_000)).unwrap().wait(Some(LONG)).unwrap();
    assert!(matches!(refused, Err(DeliveryError::StoreWaits(_))));
    let failed = delivering.running.close(Some(Duration::from_millis(20))).unwrap_err().to_string();
    assert!(failed.contains("database or disk is full"), "{failed}");
    answer.send(()).unwrap();
}

#[test]
fn a_close_with_a_time_limit_does_not_wait_for_a_checkpoint_that_hangs__d13() {
    let delivering = Delivering::start(settings(), takes());
    delivering.submit(many(3));
    assert!(delivering.running.wait_until_empty(LONG).unwrap());
    let ((hangs, hanging), (answer, answers)) = (channel(), channel::<()>());
    let answers = Mutex::new(answers);
    let hang = move |_: &StoreError| {
        hangs.send(()).unwrap();
        let _ = answers.lock().recv_timeout(LONG);
    };
    let nowhere = delivering.folder.path().join("nowhere.db");
    let slow = Checkpoints::start_at(&nowhere, None, Box::new(hang)).unwrap();
    delivering.running.engine().with_store(|store| slow.after_commit(store));
    hanging.recv_timeout(LONG).unwrap();
    let before = delivering.running.engine().with_writer(|writer| writer.checkpoints.replace(slow)).unwrap();
    drop(before);
    let began = Instant::now();
    let failed = delivering.running.close(Some(Duration::from_millis(20))).unwrap_err().to_string();
    assert!(failed.contains("the disk did not answer in time"), "{failed}");
    assert!(began.elapsed() < LONG, "it waited");
    answer.send(()).unwrap();
    wait_until_closed(&delivering.folder.path().join("store.db"));
    let again = Delivering::on(delivering.folder.clone(), settings(), takes());
    assert_eq!(again.running.close(Some(LONG)).unwrap().resumed, 0, "all of it was committed");
}

/// Its sends wait until the test ends them.
struct SendsSlowly(Arc<Mutex<Receiver<()>>>, Sender<()>);

impl Sink for SendsSlowly {
    fn max_messages(&self) -> usize {
        1
    }

    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        self.1.send(()).unwrap();
        let _ = self.0.lock().recv_timeout(LONG);
        Ok(Verdicts::Delivered)
    }
}

/// As with dead letters that can't be written while a machine is busy: the next run repeated what was in flight.
#[test]
fn what_is_in_flight_as_the_run_fails_is_committed_when_it_has_arrived__d5() {
    let ((end, ended), (begins, begun)) = (channel(), channel());
    let ended = Arc::new(Mutex::new(ended));
    let open: OpenSink = Arc::new(move |_: &str| {
        let sink = SendsSlowly(ended.clone(), begins.clone());
        Ok(Opened::Sink(Box::new(sink)))
    });
    let delivering = Delivering::with_threads(1, settings(), open);
    delivering.submit(many(2));
    begun.recv_timeout(LONG).unwrap();
    delivering.running.fail(&DeliveryError::Failed("the letters can't be written".to_owned()));
    begun
        .recv_timeout(Duration::from_millis(100))
        .expect_err("nothing more is sent, and a writer that does not wait has ended");
    let closing = spawn({
        let (running, folder) = (Arc::new(delivering.running), delivering.folder.clone());
        move || (running.close(Some(LONG)).unwrap_err().to_string(), folder)
    });
    drop::<Sender<()>>(end);
    let (failure, folder) = closing.join().unwrap();
    assert!(failure.contains("the letters can't be written"), "{failure}");
    let again = Delivering::on(folder, settings(), takes());
    assert!(again.running.wait_until_empty(LONG).unwrap());
    assert_eq!(again.running.close(Some(LONG)).unwrap().delivered, 1, "the other one was committed");
}

/// Each was opened anew as it ended, a thousand times a second, until a close.
#[test]
fn no_sink_is_opened_once_the_run_has_failed__d8() {
    let (opens, opened) = channel();
    let open: OpenSink = Arc::new(move |_: &str| {
        opens.send(()).unwrap();
        Ok(Opened::Sink(Box::new(Takes)))
    });
    let delivering = Delivering::with_threads(8, settings(), open);
    delivering.running.fail(&DeliveryError::Failed("the disk is full".to_owned()));
    let shared = &delivering.running.shared;
    wait_until("the writer ends", || shared.telling.lock().is_over);
    wait_until("all senders end", || shared.senders.lock().working.is_empty());
    while opened.try_recv().is_ok() {}
    opened.recv_timeout(Duration::from_millis(100)).expect_err("no more is opened");
    delivering.running.close(Some(LONG)).unwrap_err();
}

/// Its sync waits until the test ends it.
struct SyncsSlowly(Arc<Mutex<Receiver<()>>>);

impl Sink for SyncsSlowly {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        Ok(Verdicts::Delivered)
    }

    fn sync(&self) -> Option<SyncFn> {
        let end = self.0.clone();
        Some(Arc::new(move || {
            let _ = end.lock().recv_timeout(LONG);
            Ok(())
        }))
    }
}

#[test]
fn a_sync_that_takes_long_is_told_once_and_before_it_ends__d15() {
    let (end, ended) = channel();
    let ended = Arc::new(Mutex::new(ended));
    let open: OpenSink = Arc::new(move |_: &str| Ok(Opened::Sink(Box::new(SyncsSlowly(ended.clone())))));
    let delivering = Delivering::with_threads(1, settings(), open);
    delivering.submit(many(1));
    let slow = |it: &&Event| matches!(it, Event::SlowSync { after_s: 3 });
    wait_until("the event", || delivering.told.events().iter().any(|it| slow(&it)));
    assert_eq!(delivering.running.engine().summary().delivered, 0, "nothing is on disk");
    drop::<Sender<()>>(end);
    assert_eq!(delivering.running.close(Some(LONG)).unwrap().delivered, 1);
    assert_eq!(delivering.told.events().iter().filter(slow).count(), 1);
}

#[test]
fn events_that_wait_for_a_slow_observer_are_bounded_and_counted__d8() {
    let failed = |number: usize| Event::Failed {
        destination: None,
        key: None,
        id: number.to_string(),
        times: 1,
        reason: String::new(),
    };
    let mut events = Events::default();
    (0..5_000).for_each(|number| events.add(failed(number)));
    (0..10).for_each(|_| events.add(Event::Paused));
    let waiting = events.take();
    assert_eq!(waiting.len(), 1_000 + 10 + 1);
    assert_eq!((&waiting[999], &waiting[1_009]), (&failed(999), &Event::Paused));
    assert_eq!(waiting[1_010], Event::LeftOut { count: 4_000 });
    events.add(Event::Paused);
    assert_eq!(events.take(), [Event::Paused]);
}

#[test]
fn what_a_thread_that_died_was_changing_is_not_written__d6() {
    let by_hand = ByHand::start(settings());
    by_hand.give(vec![put(None, "a", START_MS), put(None, "b", START_MS)]);
    let (number, deliveries) = by_hand.take().unwrap();
    assert_eq!(deliveries.len(), 2);
    by_hand.engine.settle(number, Verdicts::Delivered, None);
    std::thread::scope(|scope| {
        let dies = scope.spawn(|| {
            let _window = by_hand.engine.lock_dispatcher();
            panic!("the test panics in the middle of a change");
        });
        assert!(dies.join().is_err());
    });
    let failed = by_hand.engine.write(&|| Ok(())).unwrap_err().to_string();
    assert!(failed.contains("a thread that uses it panicked"), "{failed}");
    let _ = by_hand.engine.close(Sends::AllEnded);
    let mut again = by_hand.again().sent();
    again.sort_by_key(|it| it.seq);
    assert_eq!(
        again.iter().map(|it| (it.id().to_owned(), it.redelivered)).collect::<Vec<_>>(),
        [("a".to_owned(), true), ("b".to_owned(), true)]
    );
}

#[test]
fn names_count_in_the_size_of_what_is_queued__d8() {
    let long = "x".repeat(1 << 20);
    let items = [
        cancel(Some(&long), &long),
        put(Some(&long), &long, START_MS),
        Item::Look { id: long.clone(), key: Some(long.clone()) },
        Item::Requeue { id: long.clone(), key: Some(long.clone()) },
        Item::Reschedule(Reschedule { id: long.clone(), key: Some(long.clone()), due_ms: START_MS }),
    ];
    for item in items {
        assert!(item.size() > 2 << 20, "{}", item.size());
    }
    let origin = Origin { source: "".into(), line: 1, record: None };
    let parsed = Parsed::Cancel(Cancel { id: long.clone(), key: Some(long), keep_days: 1 }, origin);
    assert!(parsed.size_in_memory() > 2 << 20);
}
