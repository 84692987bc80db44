//! Races of an event with the due time, a cancel, a move, and a replacement, between any steps of groups and sends (D22). Each
//! message comes once, with the cause that the answers tell.
//!
//! `TICKWHEEL_RACES=100000` plays so many races of each kind.

use super::events::{at, caused, event, happens, waits};
use super::testing::{ByHand, arrives, cancel};
use crate::group::items::{Answer, Item, Receipt};
use crate::group::writer::{Begun, Committed};
use crate::message::incoming::Incoming;
use crate::message::{Reschedule, checked};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdicts};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    Deadline,
    Cancel,
    Move,
    Replace,
}

struct Races {
    world: ByHand,
    random: fastrand::Rng,
    begun: Option<Begun>,
    committed: Option<Committed>,
    sending: Option<(u64, Vec<Delivery>)>,
    came: Vec<String>,
}

impl Races {
    fn write_a_part(&mut self) {
        let engine = &self.world.engine;
        if let Some(committed) = self.committed.take() {
            engine.publish_group(&committed).unwrap();
        } else if let Some(begun) = self.begun.take() {
            self.committed = Some(engine.commit_group(begun, &|| Ok(())).unwrap());
        } else {
            self.begun = Some(engine.begin_group().unwrap());
        }
    }

    fn send_a_part(&mut self) {
        if let Some((number, deliveries)) = self.sending.take() {
            self.world.engine.settle(number, Verdicts::Delivered, None);
            self.came.extend(deliveries.iter().map(caused));
        } else {
            self.sending = self.world.take();
        }
    }

    fn some_steps(&mut self) {
        for _ in 0..self.random.usize(0..9) {
            match self.random.u8(0..5) {
                0 => self.world.advance_us(500),
                1..=3 => self.write_a_part(),
                _ => self.send_a_part(),
            }
        }
    }

    fn finish(&mut self) {
        while self.begun.is_some() || self.committed.is_some() {
            self.write_a_part();
        }
        if self.sending.is_some() {
            self.send_a_part();
        }
        for ms in [0, 5, 25] {
            self.world.advance_ms(ms);
            self.came.extend(self.world.deliver(arrives).iter().map(caused));
        }
    }

    fn race(&mut self, id: &str, against: Against) {
        let due_ms = self.world.wall_ms() + 2;
        let key = || Some("k".to_owned());
        let other = match against {
            Against::Deadline => None,
            Against::Cancel => Some(cancel(Some("k"), id)),
            Against::Move => Some(Item::Reschedule(Reschedule { key: key(), id: id.into(), due_ms: due_ms + 10 })),
            Against::Replace => {
                let message = checked(at(id, due_ms + 10).with_key("k").until_event(["paid"]), 9).unwrap();
                Some(Item::Replace { put: Incoming::of(message), at_latest_ms: None })
            }
        };
        drop(self.world.submit(vec![waits("k", id, due_ms, &["paid"])]));
        self.some_steps();
        let is_first = self.random.bool();
        let mut others = Vec::new();
        let mut of_event = None;
        for is_event in [is_first, !is_first] {
            if is_event {
                of_event = Some(self.world.submit(vec![happens(event("k", id, "paid"))]));
            } else if let Some(other) = other.clone() {
                others.push(self.world.submit(vec![other]));
            }
            self.some_steps();
        }
        self.finish();
        let of = |receipt: Receipt| receipt.wait(None).unwrap().unwrap();
        let count = of(of_event.unwrap()).let_go[0].1;
        let answer = others.pop().map(|receipt| of(receipt).given[0]);
        let by = |is_event: bool| format!("{id} {}", if is_event { "event" } else { "deadline" });
        let expected = match answer {
            Some(Answer::Cancelled) => vec![],
            // An earlier one was let go, and replaced.
            Some(Answer::Replaced) => vec![by(count == 1 && !is_first)],
            Some(Answer::Accepted) => vec![by(count == 1 && is_first), by(count == 1 && !is_first)],
            Some(Answer::Rescheduled | Answer::Delivered | Answer::Delivering) | None => vec![by(count == 1)],
            Some(other) => panic!("{other:?}"),
        };
        assert_eq!(std::mem::take(&mut self.came), expected, "{id} {against:?} {answer:?} {count} {is_first}");
    }
}

#[test]
fn whichever_comes_first_each_message_comes_once_and_as_it_was_answered__d22() {
    let rounds = std::env::var("TICKWHEEL_RACES").map_or(300, |text| text.parse().unwrap());
    for against in [Against::Deadline, Against::Cancel, Against::Move, Against::Replace] {
        for first in (0..rounds).step_by(1_000) {
            // A store of its own: it keeps the names of all its messages, in memory.
            let (world, random) = (ByHand::start(Settings::default()), fastrand::Rng::with_seed(first));
            let mut races = Races { world, random, begun: None, committed: None, sending: None, came: Vec::new() };
            for round in first..rounds.min(first + 1_000) {
                races.race(&round.to_string(), against);
            }
        }
    }
}
