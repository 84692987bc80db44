//! Each action against delivery in the very moment (D7, D16): exactly one outcome, and the answer is true.
//!
//! Messages become due while they are acted upon, by threads on a real clock. `TICKWHEEL_SOAK=1`: 100,000 races of each action.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::testing::{Delivering, LONG, cancel, folder_in_memory, put, wait_until};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::incoming::Incoming;
use crate::message::{Body, Message, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, OpenSink, Opened, Sink, Verdict, Verdicts};

/// Messages that are due in the same few milliseconds.
const AT_ONCE: usize = 500;
const THREADS: usize = 4;

/// The sends of each message: the payload, the due time, and the moment.
type Sent = Arc<Mutex<HashMap<String, Vec<(Vec<u8>, i64, Instant)>>>>;

/// A sink that notes its messages, or refuses them.
struct Notes {
    most: usize,
    sent: Sent,
    refuses: Arc<AtomicBool>,
}

impl Sink for Notes {
    fn max_messages(&self) -> usize {
        self.most
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let began = Instant::now();
        if self.refuses.load(Ordering::SeqCst) {
            return Ok(Verdicts::Each(deliveries.iter().map(|_| Verdict::Refused("no".to_owned())).collect()));
        }
        std::thread::yield_now(); // others act meanwhile
        let mut sent = self.sent.lock();
        for it in deliveries {
            assert!(SystemWallTime.now_us() / 1_000 >= it.due_ms, "{} is early", it.id());
            sent.entry(it.id().to_owned()).or_default().push((it.payload().to_vec(), it.due_ms, began));
        }
        Ok(Verdicts::Delivered)
    }
}

struct World {
    delivering: Delivering,
    sent: Sent,
    refuses: Arc<AtomicBool>,
}

impl World {
    /// `most`: messages of one send.
    fn start(max_attempts: u32, most: usize) -> Self {
        let (sent, refuses) = (Sent::default(), Arc::new(AtomicBool::new(false)));
        let (noted, refused) = (sent.clone(), refuses.clone());
        let open: OpenSink = Arc::new(move |_: &str| {
            Ok(Opened::Sink(Box::new(Notes { most, sent: noted.clone(), refuses: refused.clone() })))
        });
        let retry = Retry { max_attempts, first_ms: 1, longest_ms: 2, waits_ms: Vec::new(), waits_end: false };
        let folder = Arc::new(folder_in_memory()); // a slow disk would decide each race
        let settings = Settings { retry, ..Settings::default() };
        Self { delivering: Delivering::in_folder(folder, THREADS, settings, open), sent, refuses }
    }

    fn ask(&self, items: Vec<Item>) -> Vec<Answer> {
        self.delivering.running.engine().submit(items).unwrap().wait(Some(LONG)).unwrap().unwrap().given
    }

    fn wait_until_empty(&self) {
        assert!(self.delivering.running.wait_until_empty(LONG).unwrap());
    }

    fn times_sent(&self, id: &str) -> usize {
        self.sent.lock().get(id).map_or(0, Vec::len)
    }
}

fn is_soak() -> bool {
    std::env::var_os("TICKWHEEL_SOAK").is_some()
}

fn races() -> usize {
    if is_soak() { 100_000 } else { 3_000 }
}

fn now_ms() -> i64 {
    SystemWallTime.now_us() / 1_000
}

/// Each round submits messages that are due within milliseconds, and acts on each as it becomes due. It goes on until each of the
/// answers that are wanted has come: then both sides of the race were seen.
fn rounds(world: &World, wanted: &[Answer], mut act: impl FnMut(&World, &[String], i64) -> Vec<Answer>) {
    let mut seen: HashSet<Answer> = HashSet::new();
    let least = races() / AT_ONCE;
    let end = Instant::now() + LONG;
    for round in 0.. {
        if round >= least && wanted.iter().all(|answer| seen.contains(answer)) {
            return;
        }
        assert!(round < least || Instant::now() < end, "of {wanted:?} only {seen:?} came");
        let ids: Vec<String> = (0..AT_ONCE).map(|n| format!("{round}.{n}")).collect();
        let due_ms = now_ms() + 4;
        let due_of = |n: usize| due_ms + (n % 8) as i64;
        world.ask(ids.iter().enumerate().map(|(n, id)| put(None, id, due_of(n))).collect());
        while now_ms() < due_ms {
            std::hint::spin_loop();
        }
        for part in ids.chunks(25) {
            seen.extend(act(world, part, due_ms));
        }
    }
}

#[test]
fn a_message_is_cancelled_or_sent_and_never_both__d7() {
    let world = World::start(5, 16);
    let mut told = Vec::new();
    rounds(&world, &[Answer::Cancelled, Answer::Delivered], |world, ids, _| {
        let given = world.ask(ids.iter().map(|id| cancel(None, id)).collect());
        told.extend(ids.iter().cloned().zip(given.clone()));
        given
    });
    world.wait_until_empty();
    for (id, answer) in &told {
        let expected = usize::from(*answer != Answer::Cancelled);
        assert_eq!(world.times_sent(id), expected, "{id} was answered {answer:?}");
    }
}

#[test]
fn a_message_goes_out_at_the_time_that_it_was_moved_to_or_at_its_own__d16() {
    let world = World::start(5, 16);
    let mut told = Vec::new();
    rounds(&world, &[Answer::Rescheduled, Answer::Delivered], |world, ids, due_ms| {
        let to = |id: &String| Item::Reschedule(Reschedule { id: id.clone(), key: None, due_ms: due_ms + 30 });
        let given = world.ask(ids.iter().map(to).collect());
        told.extend(ids.iter().cloned().zip(given.clone()).map(|(id, answer)| (id, answer, due_ms + 30)));
        given
    });
    world.wait_until_empty();
    for (id, answer, moved_ms) in &told {
        let sent = world.sent.lock()[id].clone();
        assert_eq!(sent.len(), 1, "{id} was answered {answer:?}");
        assert_eq!(sent[0].1 == *moved_ms, *answer == Answer::Rescheduled, "{id} was answered {answer:?}");
    }
}

#[test]
fn a_message_that_is_replaced_does_not_go_out_and_the_new_one_does__d16() {
    let world = World::start(5, 16);
    let mut told = Vec::new();
    let new = |id: &String, due_ms| {
        let body = Body::new(None, id, b"2", true);
        Item::Replace { put: Incoming::of(Message { body, due_ms, delay_ms: None }), at_latest_ms: None }
    };
    rounds(&world, &[Answer::Replaced, Answer::Accepted], |world, ids, due_ms| {
        let given = world.ask(ids.iter().map(|id| new(id, due_ms + 20)).collect());
        told.extend(ids.iter().cloned().zip(given.clone()));
        given
    });
    world.wait_until_empty();
    for (id, answer) in &told {
        let sent = world.sent.lock()[id].clone();
        let payloads: Vec<&[u8]> = sent.iter().map(|(payload, ..)| &payload[..]).collect();
        let expected: &[&[u8]] = match answer {
            Answer::Replaced => &[b"2"],
            Answer::Accepted => &[b"{\"x\":1}", b"2"],
            Answer::Delivering => &[b"{\"x\":1}"],
            other => panic!("{id} was answered {other:?}"),
        };
        assert_eq!(payloads, expected, "{id} was answered {answer:?}");
    }
}

#[test]
fn after_the_answer_to_a_pause_no_send_begins_but_those_on_their_way__d16() {
    const OF_EACH: usize = 8;
    let world = World::start(5, 1);
    for round in 0..races() / if is_soak() { 1 } else { OF_EACH } {
        let due_ms = now_ms() + 1;
        let ids: Vec<String> = (0..OF_EACH).map(|n| format!("{round}.{n}")).collect();
        world.ask(ids.iter().enumerate().map(|(n, id)| put(None, id, due_ms + (n % 3) as i64)).collect());
        world.ask(vec![Item::pause(None, true)]);
        let paused = Instant::now();
        while now_ms() < due_ms + 3 {
            std::hint::spin_loop();
        }
        let sent = world.sent.lock();
        // Each thread may have taken one from the engine before the answer.
        let late = ids.iter().filter_map(|id| sent.get(id)).flatten().filter(|(.., began)| *began > paused).count();
        drop(sent);
        assert!(late <= THREADS, "{late} were sent after the answer");
        world.sent.lock().retain(|id, _| id.starts_with(&format!("{round}.")));
        world.ask(vec![Item::pause(None, false)]);
        world.wait_until_empty();
        assert!(ids.iter().all(|id| world.times_sent(id) == 1), "each goes out once");
    }
}

#[test]
fn after_the_answer_to_its_cancel_no_occurrence_of_a_rule_begins__d7_d19() {
    let world = World::start(5, 16);
    for round in 0..races() / AT_ONCE {
        let ids: Vec<String> = (0..AT_ONCE).map(|n| format!("{round}.{n}")).collect();
        let first = UNIX_EPOCH + Duration::from_micros(SystemWallTime.now_us() as u64 + 4_000);
        let beat = |(n, id): (usize, &String)| {
            let first = first + Duration::from_millis(n as u64 % 8);
            Item::Put(Incoming::of(Message::every(id, Duration::from_millis(10), "1").starting_at(first)))
        };
        world.ask(ids.iter().enumerate().map(beat).collect());
        let mut answered = HashMap::new();
        for part in ids.chunks(25) {
            let given = world.ask(part.iter().map(|id| cancel(None, id)).collect());
            assert!(given.iter().all(|answer| *answer == Answer::Cancelled), "{given:?}");
            let now = Instant::now();
            answered.extend(part.iter().map(|id| (id.clone(), now)));
        }
        world.wait_until_empty();
        let sent = std::mem::take(&mut *world.sent.lock());
        let mut late: HashMap<&str, usize> = HashMap::new();
        for (id, times) in &sent {
            assert_eq!(times.len(), 1, "{id} comes once");
            let (rule, _) = id.split_once('@').expect("an occurrence");
            *late.entry(rule).or_default() += usize::from(times[0].2 > answered[rule]);
        }
        // A thread may have taken one message before the answer.
        assert!(late.values().all(|count| *count <= 1), "{late:?}");
    }
}

#[test]
fn a_dead_letter_that_is_asked_for_twice_goes_out_once__d16() {
    let world = World::start(1, 16);
    let requeue = |id: &String| Item::Requeue { id: id.clone(), key: None };
    for round in 0..races() / AT_ONCE {
        let ids: Vec<String> = (0..AT_ONCE).map(|n| format!("{round}.{n}")).collect();
        world.refuses.store(true, Ordering::SeqCst);
        world.ask(ids.iter().map(|id| put(None, id, 1)).collect());
        let half = AT_ONCE / 2;
        // Some are dead by now, and some are being refused in this moment.
        let early = world.ask(ids[..half].iter().map(requeue).collect());
        world.wait_until_empty();
        world.refuses.store(false, Ordering::SeqCst);
        let all = world.ask(ids.iter().map(requeue).collect());
        let again = world.ask(ids.iter().map(requeue).collect());
        world.wait_until_empty();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(all[n], Answer::Requeued, "{id}: {:?} before", early.get(n));
            assert!(
                matches!(again[n], Answer::Waiting | Answer::Delivering | Answer::Delivered),
                "{id} was answered {:?}",
                again[n]
            );
            assert_eq!(world.times_sent(id), 1, "{id}");
        }
    }
    wait_until("the letters are told", || world.delivering.running.engine().is_empty());
}
