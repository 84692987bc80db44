//! Tenants at random (D24): whatever they are set to, and whatever becomes of their messages, nothing of them stays, and no
//! place.

use super::destinations::{message, pause, set, world};
use super::tenant_limits::{pause_tenant, remove, set_tenant};
use super::tenants::of;
use super::testing::{ByHand, arrives, play_seeds};
use crate::due::pace::Rate;
use crate::due::window::Bounds;
use crate::group::items::Item;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::sql::failing;
use crate::store::{ActionKind, Filter, Limits};

const TENANTS: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Play {
    random: fastrand::Rng,
    world: ByHand,
    out: Vec<(u64, Vec<Delivery>)>,
    next_id: i32,
}

impl Play {
    fn begin(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let bounds = Bounds { messages: random.usize(5..60), lane_messages: random.usize(1..4), ..Bounds::default() };
        let limits =
            Limits { idle_shares: random.usize(0..3), first_due_times: random.usize(1..4), ..Limits::default() };
        let tenant_concurrency = random.bool().then(|| random.usize(1..4));
        let tenant_rate = (random.u8(0..3) == 0).then(|| Rate { messages: random.u64(1..40), per_us: 1_000_000 });
        let sink_timeout_ms = 1_000;
        let settings =
            Settings { tenant_concurrency, tenant_rate, sink_timeout_ms, bounds, limits, ..Settings::default() };
        Self { random, world: world(settings, &["x", "y"]), out: Vec::new(), next_id: 0 }
    }

    fn name(&mut self) -> &'static str {
        TENANTS[self.random.usize(0..5)]
    }

    fn to(&mut self) -> &'static str {
        ["x", "y"][self.random.usize(0..2)]
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.u8(0..3))
    }

    fn give(&self, item: Item) {
        self.world.give(vec![item]);
    }

    fn put_some(&mut self) {
        let mut items = Vec::new();
        for _ in 0..self.random.usize(1..25) {
            self.next_id += 1;
            let (name, to, key, id) = (self.name(), self.to(), self.key(), self.next_id.to_string());
            let key = self.random.bool().then_some(key);
            let due_ms = self.world.wall_ms() + self.random.i64(-2_000..15_000);
            items.push(match self.random.u8(0..6) {
                0 => message(to, key.as_deref(), &id, due_ms),
                _ => of(name, Some(to), key.as_deref(), &id, due_ms),
            });
        }
        self.world.give(items);
    }

    fn move_one(&mut self) {
        let due_ms = self.world.wall_ms() + self.random.i64(-9..4_000);
        let id = self.random.i32(0..=self.next_id).to_string();
        for key in [None, Some("k0"), Some("k1"), Some("k2")] {
            self.give(Item::Reschedule(Reschedule { id: id.clone(), key: key.map(str::to_owned), due_ms }));
        }
    }

    /// Gives a message to another tenant. It may be out.
    fn replace_one(&mut self) {
        let (name, to) = (self.name(), self.to());
        let (old, due_ms) = (self.random.i32(0..=self.next_id), self.world.wall_ms() + self.random.i64(-9..2_000));
        if let Item::Put(put) = of(name, Some(to), Some("k1"), &old.to_string(), due_ms) {
            self.give(Item::Replace { put, at_latest_ms: None });
        }
    }

    fn remove_destination(&mut self) {
        let name = self.to().to_owned();
        self.give(Item::RemoveDestination { name: name.clone(), dead: true });
        for _ in 0..self.random.u8(0..6) {
            let _ = self.world.engine.write(&|| Ok(()));
        }
        self.give(set(&name, ""));
    }

    /// Calls that were cut off go on.
    fn open_store_anew(&mut self) {
        self.world.advance_ms(1_500);
        self.take_all();
        self.world.advance_ms(1_500);
        self.world.engine.lock_dispatcher().advance();
        self.world.write();
        let _ = self.world.submit(vec![set_tenant("e", "{}")]);
        failing::after(0);
        let has_failed = (0..1_000).any(|_| self.world.engine.write(&|| Ok(())).is_err());
        failing::end();
        if has_failed && !self.world.engine.lock_dispatcher().has_flights() {
            self.world.engine.open_anew(&|| Ok(())).unwrap();
        }
    }

    fn act(&mut self, kind: ActionKind) {
        let (id, tenant) = (format!("act {}", self.random.u64(..)), Some(self.name().to_owned()));
        self.give(Item::Act { id, kind, filter: Filter { tenant, ..Filter::default() } });
    }

    fn take_all(&mut self) {
        while self.out.len() < 12
            && let Some(it) = self.world.engine.take(self.random.usize(1..5), usize::MAX, true)
        {
            self.out.push(it);
        }
    }

    fn settle_some(&mut self) {
        while !self.out.is_empty() && self.random.u8(0..4) > 0 {
            let (number, deliveries) = self.out.swap_remove(self.random.usize(0..self.out.len()));
            let verdict = |_: &Delivery| match self.random.u8(0..6) {
                0 => Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None },
                1 => {
                    let retry_after_ms = Some(self.random.u64(0..20_000));
                    Verdict::Failed { reason: "no".to_owned(), retry_after_ms }
                }
                2 => Verdict::NotTried,
                _ => Verdict::Delivered,
            };
            let each = deliveries.iter().map(verdict).collect();
            self.world.engine.settle(number, Verdicts::Each(each), None);
        }
    }

    fn settle_all(&mut self) {
        for (number, _) in self.out.drain(..) {
            self.world.engine.settle(number, Verdicts::Delivered, None);
        }
    }

    fn step(mut self) -> Self {
        let (name, to, key) = (self.name(), self.to(), self.key());
        let (is_rare, is_on) = (self.random.u8(0..4) == 0, self.random.bool());
        match self.random.u8(0..30) {
            0..8 => self.put_some(),
            8 => {
                let number = self.random.u8(1..9);
                let settings = match self.random.u8(0..4) {
                    0 => format!(r#"{{"concurrency":{number}}}"#),
                    1 => format!(r#"{{"rate":"{number}/{}"}}"#, ["s", "min"][self.random.usize(0..2)]),
                    2 => format!(r#"{{"weight":{number}}}"#),
                    _ => r#"{"paused":true}"#.to_owned(),
                };
                self.give(set_tenant(name, &settings));
            }
            9 => self.give(remove(name)),
            10 => self.give(pause_tenant(name, is_on)),
            11 => self.give(pause(to, is_on)),
            12 => self.give(Item::Pause { key: Some(key), is_paused: is_on }),
            13 => self.move_one(),
            14 => self.replace_one(),
            15 if is_rare => self.remove_destination(),
            16 if is_rare => {
                self.settle_all();
                self.world = self.world.again();
                self.world.engine.take_named(TakesNamed::All).unwrap();
            }
            17 if is_rare => self.open_store_anew(),
            18 => self.act(ActionKind::Requeue),
            19 if is_rare => self.act(ActionKind::Cancel),
            20 => self.world.advance_ms(self.random.u64(0..5_000)),
            21 => self.world.advance_ms(1),
            _ => self.settle_some(),
        }
        if self.random.u8(0..3) > 0 {
            self.world.write();
        }
        self.take_all();
        self
    }

    fn end(mut self, seed: u64) {
        self.settle_all();
        self.world.write();
        for name in TENANTS {
            self.give(remove(name));
        }
        for to in ["x", "y"] {
            self.world.give(vec![set(to, ""), pause(to, false)]);
        }
        for key in 0..3 {
            self.give(Item::Pause { key: Some(format!("k{key}")), is_paused: false });
        }
        let open_count = || self.world.engine.with_store(|store| store.open_count());
        for _ in 0..6 {
            if open_count() > 0 {
                self.world.pass_ms(600_000, arrives);
            }
        }
        let dispatcher = self.world.engine.lock_dispatcher();
        let states: Vec<_> = (1..8).map(|it| dispatcher.tenant_state(it)).collect();
        drop(dispatcher);
        let is_over = states.iter().all(|it| *it == (false, 0));
        assert!(open_count() == 0 && is_over, "seed {seed}: {} are left, {states:?}", open_count());
    }
}

#[test]
fn whatever_becomes_of_tenants_and_their_messages_nothing_of_them_stays__d5_d24() {
    play_seeds(60, |seed, _| {
        let steps = fastrand::Rng::with_seed(seed).usize(20..250);
        (0..steps).fold(Play::begin(seed), |play, _| play.step()).end(seed);
    });
}
