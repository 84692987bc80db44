//! Recurring messages among crashes, failures, cancels, new rules, moved occurrences and steps of the wall clock, by
//! seeds. A model says which may come. Its times are by the clock as it is: a step moves all of them.

use super::{ByHand, record, replace};
use crate::base::due_times::due_from_text;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::scenarios::testing::{START_MS, cancel, play_seeds};
use crate::sinks::{Delivery, Verdict, Verdicts};

const NAMES: usize = 3;

/// The model's knowledge of one name.
#[derive(Clone, Debug, Default)]
struct Rule {
    is_live: bool,
    /// Which of its rules is current. The payload is this number.
    number: u32,
    every: i64,
    missed: &'static str,
    from_ms: i64,
    /// The last occurrence of this rule that went out, or was cancelled.
    last_ms: Option<i64>,
    /// When that had its outcome at the earliest.
    ended_ms: i64,
    /// Sends of the current rule and of rules before it, with their ids. They may come again after a crash.
    sent: Vec<(u32, i64, String)>,
    /// The occurrence that was due when the rule before was replaced.
    left: Option<(u32, i64)>,
    /// Occurrences that were cancelled by their own names, and the counts of steps in these.
    cancelled: Vec<(i64, usize)>,
}

impl Rule {
    fn grid(&self, from_ms: i64) -> i64 {
        let steps = (from_ms - self.from_ms).max(0) as u64;
        self.from_ms + (steps.div_ceil(self.every as u64) * self.every as u64) as i64
    }

    /// Whether the occurrence was cancelled by its name, or a rule before sent it. Then it need not come, and if it
    /// arrived it must not come.
    fn may_be_over(&self, at_ms: i64) -> bool {
        self.cancelled.iter().any(|it| it.0 == at_ms) || self.sent.iter().any(|sent| sent.1 == at_ms)
    }

    /// The wall clock was stepped.
    fn follow(&mut self, by_ms: i64) {
        self.from_ms += by_ms;
        self.ended_ms += by_ms;
        let times = self.last_ms.iter_mut().chain(self.left.iter_mut().map(|it| &mut it.1));
        let times = times.chain(self.sent.iter_mut().map(|it| &mut it.1));
        times.chain(self.cancelled.iter_mut().map(|it| &mut it.0)).for_each(|at_ms| *at_ms += by_ms);
    }

    /// Whether all times between the two may be over.
    fn follows(&self, from_ms: i64, at_ms: i64) -> bool {
        let mut times = (0..).map(|step| from_ms + step * self.every).take_while(|time| *time < at_ms);
        at_ms >= from_ms && times.all(|time| self.may_be_over(time))
    }

    /// Whether the occurrence of `at_ms` may go out now for the first time.
    fn check_next(&self, at_ms: i64, now_ms: i64) {
        assert_eq!(self.grid(at_ms), at_ms, "{self:?}: {at_ms} is no time of the rule");
        let Some(last_ms) = self.last_ms else { return };
        let next_ms = self.grid(last_ms + 1); // that one may be of the rule before
        let is_next = self.follows(next_ms, at_ms);
        let is_right = match self.missed {
            "all" => is_next,
            "skip" => at_ms >= self.ended_ms && (is_next || self.follows(self.grid(now_ms).min(at_ms), at_ms)),
            _ => is_next || at_ms > self.ended_ms - self.every,
        };
        assert!(is_right && at_ms >= next_ms, "{self:?}: {at_ms} at {now_ms}");
    }
}

struct Storm {
    random: fastrand::Rng,
    world: Option<ByHand>,
    rules: Vec<Rule>,
    flight: Option<(u64, Vec<Delivery>)>,
    count: u32,
    /// How far the clock was stepped in all, after each step.
    stepped_ms: Vec<i64>,
}

impl Storm {
    fn world(&self) -> &ByHand {
        self.world.as_ref().expect("it is there")
    }

    fn now_ms(&self) -> i64 {
        self.world().wall_ms()
    }

    fn give(&self, item: Item) -> Answer {
        self.world().give(vec![item])[0]
    }

    fn put(&mut self) {
        let at = self.random.usize(..NAMES);
        self.count += 1;
        let every = self.random.i64(100..400); // those of one key have to keep up
        let missed = self.random.choice(["skip", "all", "last"]).expect("three");
        let has_due = self.random.bool();
        let from_ms = if has_due { self.now_ms() + self.random.i64(-300..300) } else { START_MS + every };
        let due = if has_due { format!(r#","due":{from_ms}"#) } else { String::new() };
        let text = format!(
            r#"{{"id":"s{at}","key":"k{}","every":{every},"missed":"{missed}"{due},"payload":{}}}"#,
            at % 2,
            self.count
        );
        self.world().write(); // what has its outcome is followed by the next of the old rule
        let open = self.occurrence(at);
        let is_forced = self.random.u8(..4) == 0;
        let answer = self.give(if is_forced { replace(record(&text)) } else { record(&text) });
        let rule = &mut self.rules[at];
        assert_eq!(answer, if rule.is_live { Answer::Replaced } else { Answer::Accepted });
        let left = open.filter(|it| it.2).map(|(_, at_ms, _)| match rule.left {
            Some(left) if left.1 == at_ms => left,
            _ => (rule.number, at_ms),
        });
        let (sent, cancelled) = (std::mem::take(&mut rule.sent), std::mem::take(&mut rule.cancelled));
        let number = self.count;
        *rule = Rule { is_live: true, number, every, missed, from_ms, sent, left, cancelled, ..Rule::default() };
        let again = self.give(record(&text));
        assert_eq!(again, Answer::Duplicate);
    }

    fn cancel(&mut self) {
        let at = self.random.usize(..NAMES);
        let (id, key) = (format!("s{at}"), format!("k{}", at % 2));
        let answer = self.give(cancel(Some(&key), &id));
        if self.rules[at].number > 0 {
            assert_eq!(answer, Answer::Cancelled);
        }
        self.rules[at].is_live = false;
        if self.rules[at].number == 0 {
            self.give(replace(record(&format!(r#"{{"id":"{id}","key":"{key}","every":9,"payload":0}}"#))));
            assert_eq!(self.give(cancel(Some(&key), &id)), Answer::Cancelled);
        }
    }

    /// The open occurrence of a name: its id, its time by the rule, and whether it is due.
    fn occurrence(&self, at: usize) -> Option<(String, i64, bool)> {
        if !self.rules[at].is_live {
            return None;
        }
        let (id, key) = (format!("s{at}"), format!("k{}", at % 2));
        self.world().engine.with_store(|store| {
            let known = store.find(Some(&key), &id).unwrap().expect("it is known");
            let (known, it) = store.occurrence_of(known.seq).unwrap().expect("one that is live has an occurrence");
            let id = store.open_message(known.seq).unwrap().id().to_owned();
            let at_ms = it.at_ms + store.steps().sum_ms - it.stepped_ms; // one that was left keeps the old clock's time
            Some((id, at_ms, known.due_ms <= self.now_ms()))
        })
    }

    fn change_occurrence(&mut self) {
        let at = self.random.usize(..NAMES);
        let Some((id, at_ms, _)) = self.occurrence(at) else { return };
        let key = format!("k{}", at % 2);
        if self.random.bool() {
            let due_ms = self.now_ms() + self.random.i64(-100..500);
            let id = if self.random.bool() { id } else { format!("s{at}") };
            let answer = self.give(Item::Reschedule(Reschedule { id, key: Some(key), due_ms }));
            let late = [Answer::Rescheduled, Answer::Delivering, Answer::Delivered, Answer::Dead];
            assert!(late.contains(&answer), "{answer:?}");
        } else if self.give(cancel(Some(&key), &id)) == Answer::Cancelled {
            (self.rules[at].last_ms, self.rules[at].ended_ms) = (Some(at_ms), self.now_ms());
            let steps = id_steps(&id);
            self.rules[at].cancelled.push((at_ms, steps));
        }
    }

    fn take(&mut self) {
        if self.flight.is_some() {
            return;
        }
        let Some((number, deliveries)) = self.world().take() else { return };
        let now_ms = self.now_ms();
        for it in &deliveries {
            assert!(it.due_ms <= now_ms, "{} is early", it.id());
            let (name, due) = it.id().split_once('@').expect("an occurrence");
            let (due, steps) = (due.split('#').next().unwrap(), id_steps(it.id()));
            let (at, due_ms) = (name[1..].parse::<usize>().unwrap(), due_from_text(due, "due", None).unwrap());
            let sum_ms = |steps: usize| steps.checked_sub(1).map_or(0, |last| self.stepped_ms[last]);
            let at_ms = due_ms + sum_ms(self.stepped_ms.len()) - sum_ms(steps);
            let of: u32 = std::str::from_utf8(it.payload()).unwrap().parse().unwrap();
            let rule = &mut self.rules[at];
            if rule.sent.iter().any(|sent| (sent.0, sent.2.as_str()) == (of, it.id())) {
                assert!(it.redelivered || it.attempt > 1, "{} comes twice", it.id());
                continue;
            }
            assert!(!rule.cancelled.contains(&(at_ms, steps)), "{} was cancelled", it.id());
            if rule.left != Some((of, at_ms)) {
                assert!(rule.is_live && rule.number == of, "{} is of a rule that has ended: {rule:?}", it.id());
                rule.check_next(at_ms, now_ms);
            }
            rule.sent.push((of, at_ms, it.id().to_owned()));
            (rule.last_ms, rule.ended_ms) = (Some(at_ms), now_ms);
        }
        self.flight = Some((number, deliveries));
    }

    fn settle(&mut self) {
        let Some((number, deliveries)) = self.flight.take() else { return };
        let verdicts = deliveries.iter().map(|_| match self.random.u8(..4) {
            0 => Verdict::Refused("no".to_owned()),
            _ => Verdict::Delivered,
        });
        let verdicts = Verdicts::Each(verdicts.collect());
        self.world().engine.settle(number, verdicts, None);
    }

    fn crash(&mut self) {
        self.flight = None;
        let world = self.world.take().expect("it is there");
        self.world = Some(world.again());
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..5 => self.put(),
            5..8 => self.cancel(),
            8..16 => self.change_occurrence(),
            16..40 => self.take(),
            40..62 => self.settle(),
            62..80 => self.world().write(),
            80..82 => {
                let by_ms = 1_000 * self.random.i64(1..5);
                let is_back = self.random.bool();
                self.step_clock(if is_back { -by_ms } else { by_ms });
            }
            82..97 => {
                let ms = self.random.u64(..200);
                self.world().advance_ms(ms);
            }
            _ => self.crash(),
        }
    }

    /// The wall clock is stepped, and the store has it.
    fn step_clock(&mut self, by_ms: i64) {
        let world = self.world();
        world.step_wall_clock_ms(by_ms);
        world.engine.follow_clock();
        world.write();
        self.stepped_ms.push(self.stepped_ms.last().unwrap_or(&0) + by_ms);
        self.rules.iter_mut().for_each(|rule| rule.follow(by_ms));
    }

    /// Every live rule goes on, one occurrence after the other.
    fn heal(&mut self) {
        // What was put off to a time of the wall clock waits for it.
        let furthest_ms = self.stepped_ms.iter().max().map_or(0, |most| *most.max(&0));
        let behind_ms = furthest_ms - self.stepped_ms.last().unwrap_or(&0);
        if behind_ms > 0 {
            self.step_clock(behind_ms);
        }
        let live: Vec<usize> = (0..NAMES).filter(|at| self.rules[*at].is_live).collect();
        let before: Vec<usize> = self.rules.iter().map(|rule| rule.sent.len()).collect();
        // A rule that was put while the clock was behind begins later, and one goes on after what was moved forward or
        // cancelled.
        let ended = |rule: &Rule| rule.sent.iter().map(|it| it.1).chain(rule.cancelled.iter().map(|it| it.0)).max();
        let times = |rule: &Rule| ended(rule).map_or(rule.from_ms, |ended_ms| ended_ms.max(rule.from_ms));
        let until_ms = live.iter().map(|at| times(&self.rules[*at])).fold(self.now_ms(), i64::max) + 8_000;
        while self.now_ms() < until_ms {
            self.world().advance_ms(100);
            for _ in 0..4 {
                self.world().write();
                self.take();
                if let Some((number, _)) = self.flight.take() {
                    self.world().engine.settle(number, Verdicts::Delivered, None);
                }
            }
        }
        self.world().write();
        for at in &live {
            assert!(self.rules[*at].sent.len() > before[*at], "{at} has stopped: {:?}", self.rules[*at]);
        }
        assert_eq!(self.world().engine.open_count(), 2 * live.len() as u64);
        let it = self.world().engine.summary();
        let ended = it.delivered + it.cancelled + it.undeliverable;
        assert_eq!(it.resumed + it.accepted, ended + 2 * live.len() as u64, "{it:?}");
        self.crash();
    }
}

/// How often the clock was stepped before this occurrence was made.
fn id_steps(id: &str) -> usize {
    id.split_once('#').map_or(0, |(_, steps)| steps.parse().unwrap())
}

fn play(seed: u64) {
    let retry = Retry { max_attempts: 2, first_ms: 20, longest_ms: 20, waits_ms: Vec::new(), waits_end: false };
    let world = Some(ByHand::start(Settings { retry, horizon_ms: 100, seed, ..Settings::default() }));
    let rules = vec![Rule::default(); NAMES];
    let mut storm =
        Storm { random: fastrand::Rng::with_seed(seed), world, rules, flight: None, count: 0, stepped_ms: Vec::new() };
    for _ in 0..200 {
        storm.step();
    }
    storm.heal();
}

#[test]
fn whatever_happens_each_occurrence_comes_at_its_time_once_and_none_is_left_out__d5_d19() {
    play_seeds(200, |seed, _| play(seed));
}
