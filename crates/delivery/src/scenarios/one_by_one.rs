//! A sink that sends one delivery after another, on a manual clock: a slow delivery delays no other (D4, D6).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::testing::{many, put, settings};
use crate::base::error::DeliveryError;
use crate::due::dispatcher::Event;
use crate::group::items::Item;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Turns, Verdict};
use crate::store::file::owner::Ownership;
use tickwheel::Clock;

const START_MS: i64 = 1_700_000_000_000;

struct Bench {
    engine: Engine,
    wall_us: Arc<AtomicI64>,
    _folder: tempfile::TempDir,
}

/// What one sender has.
struct Group {
    flight: u64,
    deliveries: Vec<Delivery>,
    turns: Arc<Turns>,
}

impl Group {
    fn ids(&self) -> Vec<&str> {
        self.deliveries.iter().map(|it| it.body.id()).collect()
    }

    fn arrives(&self) {
        self.turns.begin().unwrap();
        self.turns.ended();
    }
}

impl Bench {
    fn new(items: Vec<Item>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wall_us = Arc::new(AtomicI64::new(START_MS * 1000));
        let wall = wall_us.clone();
        let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
        let settings = Settings { sink_timeout_ms: 1_000, ..settings() };
        let wall = Arc::new(move || wall.load(Ordering::Relaxed));
        let engine = Engine::open(ownership, settings, Clock::manual(0), wall).unwrap();
        engine.start(engine.wall_clock());
        let bench = Self { engine, wall_us, _folder: folder };
        let _receipt = bench.engine.submit(items).unwrap();
        bench.write();
        bench
    }

    fn write(&self) {
        while self.engine.write(&|| Ok(())).unwrap() {}
    }

    fn after_ms(&self, ms: u64) {
        self.engine.clock().set_us(self.engine.clock().now_us() + ms * 1000);
        self.wall_us.fetch_add(ms as i64 * 1000, Ordering::Relaxed);
        self.write();
    }

    fn take(&self) -> Option<Group> {
        let (flight, deliveries) = self.engine.take(256, 1 << 20, true)?;
        let turns = self.engine.lock_dispatcher().in_turn(flight);
        Some(Group { flight, deliveries, turns })
    }

    fn cut_offs(&self) -> Vec<usize> {
        let messages = |event| if let Event::CutOff { messages, .. } = event { Some(messages) } else { None };
        self.engine.take_events().into_iter().filter_map(messages).collect()
    }
}

#[test]
fn what_waits_for_a_slow_one_goes_to_another_sender_after_two_milliseconds__d4() {
    let bench = Bench::new(many(5));
    let first = bench.take().unwrap();
    assert_eq!(first.ids(), ["0", "1", "2", "3", "4"]);
    first.arrives();
    assert_eq!(first.turns.begin(), Some(1));
    bench.after_ms(1);
    assert!(bench.take().is_none());
    bench.after_ms(2);
    let second = bench.take().unwrap();
    assert_eq!(second.ids(), ["2", "3", "4"]);
    assert!(second.deliveries.iter().all(|it| it.attempt == 1));
    assert_eq!(first.turns.begin(), None, "they are another's");
    bench.write();
    assert_eq!(bench.engine.summary().delivered, 1, "what has arrived waits for nothing");
    (0..3).for_each(|_| second.arrives());
    bench.engine.settle_turns(second.flight, None);
    first.turns.ended();
    bench.engine.settle_turns(first.flight, None);
    bench.write();
    assert_eq!(bench.engine.close(true).unwrap().delivered, 5);
}

#[test]
fn those_that_were_given_back_go_out_before_what_is_due_later__d3() {
    let bench = Bench::new(vec![put(None, "a", 1), put(None, "b", 2), put(None, "c", START_MS + 2)]);
    let first = bench.take().unwrap();
    assert_eq!(first.turns.begin(), Some(0));
    bench.after_ms(3);
    assert_eq!(bench.take().unwrap().ids(), ["b", "c"]);
}

#[test]
fn the_next_of_a_key_still_waits_for_the_one_in_hand__d4() {
    let items =
        vec![put(Some("k"), "k1", 1), put(Some("l"), "l1", 2), put(Some("k"), "k2", 3), put(Some("l"), "l2", 4)];
    let bench = Bench::new(items);
    let first = bench.take().unwrap();
    assert_eq!(first.ids(), ["k1", "l1"], "one of each key");
    assert_eq!(first.turns.begin(), Some(0));
    bench.after_ms(3);
    let second = bench.take().unwrap();
    assert_eq!(second.ids(), ["l1"]);
    second.arrives();
    bench.engine.settle_turns(second.flight, None);
    bench.write();
    assert_eq!(bench.take().unwrap().ids(), ["l2"]);
    first.turns.ended();
    bench.engine.settle_turns(first.flight, None);
    bench.write();
    assert_eq!(bench.take().unwrap().ids(), ["k2"]);
}

#[test]
fn a_cut_off_is_about_the_one_in_hand_which_has_the_whole_time__d6() {
    let bench = Bench::new(many(4));
    let first = bench.take().unwrap();
    first.arrives();
    assert_eq!(first.turns.begin(), Some(1));
    bench.after_ms(900); // nobody looked at the timer
    let second = bench.take().unwrap();
    assert_eq!(second.ids(), ["2", "3"]);
    (0..2).for_each(|_| second.arrives());
    bench.engine.settle_turns(second.flight, None);
    bench.after_ms(900);
    assert!(bench.take().is_none() && bench.engine.is_in_flight(first.flight), "it has its second");
    bench.after_ms(200);
    let again = bench.take();
    assert!(!bench.engine.is_in_flight(first.flight));
    assert_eq!(bench.cut_offs(), [1]);
    assert!(again.is_none());
    bench.after_ms(60); // of back-off
    let again = bench.take().unwrap();
    assert_eq!((again.ids(), again.deliveries[0].attempt), (vec!["1"], 2));
}

#[test]
fn a_sink_that_has_not_begun_keeps_all_and_its_cut_off_costs_one_attempt__d6() {
    let bench = Bench::new(many(3));
    let first = bench.take().unwrap();
    bench.after_ms(10);
    assert!(bench.take().is_none(), "another would wait for the same");
    bench.after_ms(1_000);
    let rest = bench.take().unwrap();
    assert_eq!(bench.cut_offs(), [1]);
    assert_eq!(rest.ids(), ["1", "2"]);
    assert!(rest.deliveries.iter().all(|it| it.attempt == 1));
    assert_eq!(first.turns.begin(), None);
}

#[test]
fn the_first_that_does_not_arrive_ends_the_group_and_the_rest_is_not_counted__d6() {
    let bench = Bench::new(many(3));
    let first = bench.take().unwrap();
    first.arrives();
    assert_eq!(first.turns.begin(), Some(1));
    let gone = Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None };
    bench.engine.settle_turns(first.flight, Some(gone));
    bench.write();
    assert_eq!((bench.engine.summary().delivered, bench.engine.down()), (1, None));
    let rest = bench.take().unwrap();
    assert_eq!((rest.deliveries.len(), rest.deliveries[0].attempt), (1, 1), "the last one goes out at once");
    rest.arrives();
    bench.engine.settle_turns(rest.flight, None);
    bench.after_ms(1_000);
    let again = bench.take().unwrap();
    assert_eq!((again.deliveries.len(), again.deliveries[0].attempt), (1, 2));
}

#[test]
fn nothing_begins_once_the_engine_has_failed__d5() {
    let bench = Bench::new(many(3));
    let first = bench.take().unwrap();
    first.arrives();
    bench.engine.fail(&DeliveryError::Failed("the test ends it".to_owned()));
    assert_eq!(first.turns.begin(), None);
}
