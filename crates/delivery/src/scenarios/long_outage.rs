//! An outage of ten minutes at 1,000 messages a second, on a manual clock (D6). No message is given up, and afterwards all
//! messages are delivered in order. Memory is bounded, and the program hears of the outage twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::testing::put;
use crate::due::dispatcher::Event;
use crate::due::window::Bounds;
use crate::group::items::Item;
use crate::group::writer::Sends;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::file::owner::Ownership;
use tickwheel::Clock;

const START_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 1_000;
const KEYS: usize = 100;
const BOUNDS: Bounds = Bounds { messages: 20_000, bytes: 8 << 20, lane_messages: 128, lane_bytes: 1 << 20 };

struct Outage {
    engine: Engine,
    wall_us: Arc<AtomicI64>,
    is_down: bool,
    sent: usize,
    /// The last message that arrived of each key.
    arrived: HashMap<String, usize>,
    delivered: usize,
    events: Vec<Event>,
}

impl Outage {
    fn step(&mut self, items: Vec<Item>) {
        let receipt = (!items.is_empty()).then(|| self.engine.submit(items).unwrap());
        while self.engine.write(&|| Ok(())).unwrap() {}
        if let Some(receipt) = receipt {
            receipt.wait(None).unwrap().unwrap();
        }
        self.engine.clock().set_us(self.engine.clock().now_us() + STEP_MS as u64 * 1000);
        self.wall_us.fetch_add(STEP_MS * 1000, Ordering::Relaxed);
        while let Some((number, deliveries)) = self.engine.take(1_024, 1 << 20, true) {
            self.sent += deliveries.len();
            if self.is_down {
                assert!(self.sent < 2_500, "four keys a second are tried");
                let refused = Verdict::Unreachable { reason: "refused".to_owned(), retry_after_ms: None };
                self.engine.settle(number, Verdicts::Each(vec![refused; deliveries.len()]), None);
                continue;
            }
            for it in &deliveries {
                assert!(!it.redelivered, "it was never told to the destination");
                let (key, place) = (it.body.key().unwrap(), it.body.id().parse().unwrap());
                let last = self.arrived.insert(key.to_owned(), place);
                assert!(last.is_none_or(|last| last + KEYS == place), "{place} after {last:?}");
            }
            self.delivered += deliveries.len();
            self.engine.settle(number, Verdicts::Delivered, None);
            while self.engine.write(&|| Ok(())).unwrap() {}
        }
        let (messages, bytes) = self.engine.in_memory();
        assert!(messages <= BOUNDS.messages && bytes <= BOUNDS.bytes, "{messages} messages, {bytes} bytes in memory");
        let is_first_failure = |it: &Event| matches!(it, Event::Failed { .. });
        self.events.extend(self.engine.take_events().into_iter().filter(|it| !is_first_failure(it)));
    }
}

#[test]
fn ten_minutes_without_the_destination_cost_no_message_no_order_and_no_memory__d6() {
    let folder = tempfile::tempdir().unwrap();
    let wall_us = Arc::new(AtomicI64::new(START_MS * 1000));
    let wall = wall_us.clone();
    let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
    let settings = Settings { bounds: BOUNDS, ..Settings::default() };
    let engine =
        Engine::open(ownership, settings, Clock::manual(0), Arc::new(move || wall.load(Ordering::Relaxed))).unwrap();
    engine.start(engine.wall_clock());
    let mut outage =
        Outage { engine, wall_us, is_down: true, sent: 0, arrived: HashMap::new(), delivered: 0, events: Vec::new() };
    let mut accepted = 0;
    for _ in 0..600_000 / STEP_MS {
        let now_ms = outage.wall_us.load(Ordering::Relaxed) / 1000;
        let items = (0..STEP_MS).map(|after_ms| {
            let place = accepted + after_ms as usize;
            put(Some(&format!("k{}", place % KEYS)), &place.to_string(), now_ms + after_ms)
        });
        outage.step(items.collect());
        accepted += STEP_MS as usize;
    }
    outage.is_down = false;
    for _ in 0..600 {
        outage.step(Vec::new());
        if outage.engine.is_empty() {
            break;
        }
    }
    assert_eq!((accepted, outage.delivered), (600_000, 600_000));
    assert!(
        matches!(
            &outage.events[..],
            [Event::Down { .. }, Event::Up { after_ms: 590_000..620_000, is_untried: false, .. }]
        ),
        "{:?}",
        outage.events
    );
    assert_eq!(outage.engine.close(Sends::AllEnded).unwrap().delivered, 600_000);
}
