//! `Wheel`, the timer for one thread, beside the slowest obvious model: a sorted map.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use tickwheel::{Config, Error, Handle, LIMIT_MS, LIMIT_US, Precision, Wheel, When};

use crate::support::Random;

const SECOND: Duration = Duration::from_secs(1);

fn wheel<T>() -> Wheel<T> {
    Wheel::new(&Config::default(), 0).unwrap()
}

fn pop_all(wheel: &mut Wheel<u64>, now_us: u64) -> Vec<u64> {
    std::iter::from_fn(|| wheel.pop_due(now_us)).map(|due| due.task).collect()
}

/// A wheel and its model, which has each pending task by due instant and number.
struct Pair {
    wheel: Wheel<u64>,
    model: BTreeMap<(u64, u64), u64>,
    /// Every handle that there ever was, and its key.
    handles: Vec<(Handle, (u64, u64))>,
    number: u64,
    random: Random,
}

impl Pair {
    fn key(&mut self, when: When) -> (u64, u64) {
        self.number += 1;
        let due_us = match when {
            When::AfterUs(delay_us) => self.wheel.now_us() + delay_us,
            When::AtUs(due_us) => due_us.max(self.wheel.now_us()),
            _ => unreachable!(),
        };
        (due_us, self.number)
    }

    /// From now to far away; some in the past, and many at the same instant.
    fn when(&mut self) -> When {
        let random = &mut self.random;
        let us = random.pick(&[0, 1, 999, 1000, 20_000, 20_000_000, 400_000_000, 9_000_000_000_000]);
        match random.below(4) {
            0 => When::AtUs(self.wheel.now_us().saturating_sub(random.below(5_000))),
            1 => When::AtUs(self.wheel.now_us() / 50_000 * 50_000 + 100_000),
            _ => When::AfterUs(random.below(us + 1)),
        }
    }

    fn adds(&mut self) {
        let when = self.when();
        let key = self.key(when);
        let handle = self.wheel.add(when, key.1).unwrap();
        self.model.insert(key, key.1);
        self.handles.push((handle, key));
    }

    fn cancels(&mut self) {
        let Some((handle, key)) = self.any_handle() else { return };
        assert_eq!(self.wheel.cancel(handle), self.model.remove(&key));
    }

    fn moves(&mut self) {
        let count = self.handles.len() as u64;
        if count == 0 {
            return;
        }
        let of = self.random.below(count) as usize;
        let (handle, old) = self.handles[of];
        let when = self.when();
        let task = self.model.remove(&old);
        assert_eq!(self.wheel.reschedule(handle, when).unwrap(), task.is_some());
        if let Some(task) = task {
            let key = self.key(when);
            self.model.insert(key, task);
            self.handles[of].1 = key;
        }
    }

    fn any_handle(&mut self) -> Option<(Handle, (u64, u64))> {
        let count = self.handles.len() as u64;
        (count > 0).then(|| self.handles[self.random.below(count) as usize])
    }

    /// Takes out at most `limit` due tasks.
    fn pops(&mut self, now_us: u64, limit: u64) {
        for _ in 0..limit {
            let first = self.model.first_key_value().map(|(key, task)| (*key, *task));
            let expected = first.filter(|((due_us, _), _)| *due_us <= now_us.max(self.wheel.now_us()));
            let popped = self.wheel.pop_due(now_us).map(|due| ((due.due_us, due.task), due.tag));
            assert_eq!(popped, expected.map(|(key, task)| ((key.0, task), 0)));
            let Some((key, _)) = expected else { return };
            self.model.remove(&key);
        }
    }

    /// The time of the wheel's next wake-up, which is never late.
    fn wake_us(&mut self) -> Option<u64> {
        let wake_us = self.wheel.next_wake_us();
        let first_us = self.model.first_key_value().map(|(key, _)| key.0);
        assert!(
            first_us.is_none_or(|first_us| wake_us.is_some_and(|wake_us| wake_us <= first_us.max(self.wheel.now_us())))
        );
        wake_us
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..8 => self.adds(),
            8..11 => self.cancels(),
            11..14 => self.moves(),
            14 => {
                let count = self.random.below(3_000);
                (0..count).for_each(|_| self.adds());
            }
            15 => {
                let passed_us = self.random.pick(&[0, 1, 700, 19_000, 30_000_000]);
                let now_us = self.wheel.now_us() + self.random.below(passed_us + 1);
                self.wheel.set_now_us(now_us);
            }
            16 => {
                let limit = self.random.below(40);
                self.pops(self.wheel.now_us().saturating_sub(500), limit);
            }
            17 => self.pops(self.wheel.now_us() + 12_345_678, 5_000),
            _ => {
                if let Some(wake_us) = self.wake_us() {
                    self.pops(wake_us, u64::MAX);
                }
            }
        }
        assert_eq!((self.wheel.len(), self.wheel.is_empty()), (self.model.len(), self.model.is_empty()));
    }
}

#[test]
fn it_does_what_a_sorted_map_does__t5_t6_t7_t9() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let sizes: &[u32] = random.pick(&[&[20], &[2], &[3], &[60, 60, 12], &[256]]);
        let tick_ms = random.pick(&[1, 1, 7, 1000]);
        let config = Config { tick_ms, wheel_sizes: sizes.into(), ..Config::default() };
        let start_us = random.pick(&[0, 1_999, 8_000_000 - 1, 1_675_752_020_558_999]);
        let wheel = Wheel::new(&config, start_us).unwrap();
        let mut pair = Pair { wheel, model: BTreeMap::new(), handles: Vec::new(), number: 0, random };
        (0..400).for_each(|_| pair.step());
        let mut wake_ups = 0;
        while let Some(wake_us) = pair.wake_us() {
            pair.pops(wake_us, u64::MAX);
            wake_ups += 1;
            assert!(wake_ups < 1_000_000, "seed {seed}");
        }
        assert!(pair.model.is_empty(), "seed {seed}");
    }
}

#[test]
fn the_body_of_the_loop_uses_the_wheel__t6_t9() {
    let mut wheel = wheel();
    let handles: Vec<_> = (0..5).map(|id| wheel.add(SECOND, id).unwrap()).collect();
    let mut order = Vec::new();
    while let Some(due) = wheel.pop_due(2_000_000) {
        order.push(due.task);
        if due.task == 1 {
            assert_eq!((wheel.cancel(handles[2]), wheel.cancel(handles[1])), (Some(2), None));
            assert!(wheel.reschedule(handles[3], SECOND).unwrap());
            wheel.add(Duration::ZERO, 10).unwrap();
            wheel.add(When::AtUs(0), 11).unwrap(); // due now: it overtakes nothing
        }
    }
    assert_eq!(order, [0, 1, 4, 10, 11]);
    assert_eq!(pop_all(&mut wheel, 3_000_000), [3]);
}

#[test]
fn what_is_due_and_was_not_taken_is_pending__t9_t17() {
    let mut wheel = Wheel::new(&Config { max_pending: Some(3), ..Config::default() }, 0).unwrap();
    let handles: Vec<_> = (0..3).map(|id| wheel.add(SECOND, id).unwrap()).collect();
    assert_eq!(wheel.pop_due(1_000_000).map(|due| due.task), Some(0));
    assert_eq!((wheel.len(), wheel.next_wake_us()), (2, Some(1_000_000)));
    wheel.add(SECOND, 3).unwrap();
    assert_eq!(*wheel.add(SECOND, 4).unwrap_err().error(), Error::Full { max_pending: 3 });
    assert_eq!(wheel.cancel(handles[1]), Some(1));
    assert_eq!((wheel.len(), wheel.cancel(handles[1])), (2, None));
    assert_eq!(pop_all(&mut wheel, u64::MAX), [2, 3]);
    assert_eq!((wheel.len(), wheel.next_wake_us()), (0, None));
}

#[test]
fn bad_input_is_refused_and_the_task_comes_back__t13_t17() {
    let refused = |config: Config, start_us| Wheel::<u64>::new(&config, start_us).unwrap_err().to_string();
    assert!(refused(Config { tick_ms: 0, ..Config::default() }, 0).contains("tick_ms must be from 1"));
    assert!(refused(Config::default(), LIMIT_US).contains("a clock must start before 2^52 ms"));
    let mut wheel = Wheel::new(&Config { max_pending: Some(1), ..Config::default() }, LIMIT_US - 1).unwrap();
    let late = wheel.add(When::AfterUs(1), 7).unwrap_err();
    assert_eq!((late.to_string().contains(&LIMIT_MS.to_string()), late.into_task()), (true, 7));
    let first = wheel.add(Duration::ZERO, 1).unwrap();
    assert_eq!(wheel.add(Duration::ZERO, 2).unwrap_err().into_task(), 2);
    assert!(matches!(wheel.reschedule(first, Duration::MAX), Err(Error::Invalid(_))));
    assert_eq!(wheel.reschedule(first, Duration::ZERO), Ok(true), "a full wheel moves what it has");
    assert_eq!(wheel.cancel(Handle::from_bits(u64::MAX)), None);
    assert_eq!(wheel.cancel(first), Some(1));
    assert_eq!(wheel.reschedule(first, Duration::ZERO), Ok(false));
    wheel.set_now_us(u64::MAX);
    assert!(matches!(wheel.add(Duration::ZERO, 3).unwrap_err().error(), Error::Invalid(_)));
    assert!(wheel.is_empty() && wheel.pop_due(u64::MAX).is_none());
}

#[test]
fn a_panic_in_the_loop_loses_its_own_task_alone__t13() {
    let mut wheel = wheel();
    for id in 0..3_000 {
        wheel.add(Duration::from_millis(id % 40), id).unwrap();
    }
    let mut ran = Vec::new();
    for _ in 0..3 {
        let failed = catch_unwind(AssertUnwindSafe(|| {
            while let Some(due) = wheel.pop_due(50_000) {
                ran.push(due.task);
                if ran.len() % 1_001 == 7 {
                    resume_unwind(Box::new("the callback failed")); // without the panic hook's message
                }
            }
        }));
        assert!(failed.is_err());
    }
    ran.extend(pop_all(&mut wheel, 50_000));
    let mut expected: Vec<_> = (0..3_000).collect();
    expected.sort_by_key(|id| id % 40);
    assert_eq!(ran, expected);
}

#[test]
fn time_does_not_go_back__t1() {
    let mut wheel = wheel();
    wheel.set_now_us(5_000_000);
    wheel.set_now_us(1_000_000);
    wheel.add(SECOND, 1).unwrap();
    assert!(wheel.pop_due(5_999_999).is_none());
    assert!(wheel.pop_due(0).is_none());
    assert_eq!(wheel.now_us(), 5_999_999);
    assert_eq!(pop_all(&mut wheel, 6_000_000), [1]);
}

#[test]
fn an_empty_tick_and_a_quiet_spell_cost_no_wake_up__t4_t16() {
    let mut wheel = wheel();
    wheel.add(Duration::from_millis(200), 1).unwrap();
    wheel.add(Duration::from_millis(840), 2).unwrap();
    let mut wake_ups_us = Vec::new();
    while let Some(wake_us) = wheel.next_wake_us() {
        wake_ups_us.push(wake_us);
        pop_all(&mut wheel, wake_us);
    }
    assert_eq!(wake_ups_us, [200_000, 800_000, 840_000], "the bucket of level 3 cascades at 800 ms");
    wheel.set_now_us(100_000_000);
    wheel.add(Duration::from_millis(5), 3).unwrap();
    assert_eq!(wheel.next_wake_us(), Some(100_005_000));
}

#[test]
fn with_the_precision_of_a_tick_a_task_is_up_to_one_tick_early__t5() {
    let config = Config { tick_ms: 1000, precision: Precision::Tick, ..Config::default() };
    let mut wheel = Wheel::new(&config, 0).unwrap();
    wheel.add(When::AtUs(5_999_999), 1).unwrap();
    assert_eq!(wheel.next_wake_us(), Some(5_000_000));
    assert_eq!((pop_all(&mut wheel, 4_999_999), pop_all(&mut wheel, 5_000_000)), (vec![], vec![1]));
}

#[test]
fn it_goes_to_another_thread_if_its_tasks_do_and_drops_each_once__t9() {
    fn is_send_and_sync<T: Send + Sync>(_: &T) {}
    is_send_and_sync(&wheel::<u64>());
    let task = Rc::new(());
    let mut wheel = wheel();
    let handles: Vec<_> = (0..10).map(|_| wheel.add(SECOND, Rc::clone(&task)).unwrap()).collect();
    drop(wheel.cancel(handles[0]));
    drop(wheel.pop_due(1_000_000));
    assert_eq!((Rc::strong_count(&task), wheel.len()), (9, 8));
    assert!(format!("{wheel:?}").contains("pending: 8"));
    drop(wheel);
    assert_eq!(Rc::strong_count(&task), 1);
}
