//! Named destinations: none holds up another (D23).

use super::testing::{ByHand, START_MS, arrives};
use crate::due::dispatcher::Event;
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Cancel, Extras, Message};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::Limits;
use crate::store::maintenance::check::tests::assert_whole;

pub(super) fn message(to: &str, key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let extras = Extras { destination: Some(to.into()), ..Extras::default() };
    let body = Body::new(key, id, b"1", true).with_extras(extras);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

pub(super) fn set(name: &str, more: &str) -> Item {
    let settings = format!(r#"{{"url":"http://{name}.example/"{more}}}"#);
    Item::SetDestination { name: name.to_owned(), settings }
}

pub(super) fn pause(name: &str, is_paused: bool) -> Item {
    Item::PauseDestination { name: name.to_owned(), is_paused }
}

/// An engine with these destinations, eight ordinary places and eight spare ones.
pub(super) fn world(settings: Settings, destinations: &[&str]) -> ByHand {
    let world = ByHand::open(settings);
    world.engine.take_named(TakesNamed::All).unwrap();
    world.engine.set_places(PlaceLimits { young: 8, spare: 8, ..PlaceLimits::NONE });
    world.begin();
    let answers = world.give(destinations.iter().map(|name| set(name, "")).collect());
    assert!(answers.iter().all(|answer| *answer == Answer::Accepted));
    world
}

pub(super) fn due(to: &str, count: usize) -> Vec<Item> {
    (0..count).map(|number| message(to, Some(&number.to_string()), &format!("{to} {number:04}"), START_MS)).collect()
}

/// Takes all that can be sent now, one message in a send.
fn taken(world: &ByHand) -> Vec<(u64, Delivery)> {
    let take = || world.engine.take(1, usize::MAX, true);
    std::iter::from_fn(take).map(|(number, mut deliveries)| (number, deliveries.remove(0))).collect()
}

fn of<'a>(taken: &'a [(u64, Delivery)], to: &str) -> Vec<&'a Delivery> {
    taken.iter().map(|(_, it)| it).filter(|it| it.body.destination() == Some(to)).collect()
}

#[test]
fn a_destination_that_hangs_leaves_places_for_another_one__d23() {
    let world = world(Settings::default(), &["hangs", "well"]);
    world.give(due("hangs", 100));
    let hanging = taken(&world);
    assert_eq!(hanging.len(), 8, "as many as are left free, of sixteen");
    world.advance_ms(1_000); // they move to spare places
    assert!(taken(&world).is_empty());
    world.give(due("well", 100));
    let mut sent = 0;
    while sent < 100 {
        let now = taken(&world);
        assert!(now.len() >= 4 && of(&now, "hangs").is_empty());
        for (number, _) in &now {
            world.engine.settle(*number, Verdicts::Delivered, None);
        }
        sent += now.len();
        world.write();
    }
}

#[test]
fn destinations_take_turns__d23() {
    let world = world(Settings::default(), &["a", "b", "c"]);
    world.give([due("a", 100), due("b", 3), due("c", 3)].concat());
    let mut order = String::new();
    while order.len() < 12 {
        let (number, deliveries) = world.engine.take(1, usize::MAX, true).unwrap();
        order.push_str(deliveries[0].body.destination().unwrap());
        world.engine.settle(number, Verdicts::Delivered, None);
    }
    assert_eq!(order, "abcabcabcaaa");
}

#[test]
fn a_backlog_of_one_leaves_memory_for_another_one__d23() {
    let bounds = Bounds { messages: 100, ..Bounds::default() };
    let world = world(Settings { bounds, ..Settings::default() }, &["slow", "well"]);
    world.give(vec![pause("slow", true)]);
    world.give(due("slow", 1_000));
    let in_memory = world.engine.in_memory().0;
    assert!((40..=60).contains(&in_memory), "{in_memory}");
    world.give(due("well", 20));
    assert_eq!(of(&taken(&world), "well").len(), 8, "of its places");
    world.give(vec![pause("slow", false)]);
    let mut ids = Vec::new();
    while ids.len() < 1_000 {
        for (number, delivery) in taken(&world) {
            world.engine.settle(number, Verdicts::Delivered, None);
            ids.extend((delivery.body.destination() == Some("slow")).then(|| delivery.body.id().to_owned()));
        }
        world.write();
        world.advance_ms(1);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
}

#[test]
fn one_that_is_down_is_down_alone_and_its_messages_wait__d6_d23() {
    let world = world(Settings::default(), &["gone", "well"]);
    world.give(due("gone", 20));
    for _ in 0..30 {
        for (number, _) in taken(&world) {
            let reason = "refused".to_owned();
            world.engine.settle(
                number,
                Verdicts::Each(vec![Verdict::Unreachable { reason, retry_after_ms: None }]),
                None,
            );
        }
        world.write();
        world.advance_ms(100);
    }
    assert!(world.engine.lock_dispatcher().is_any_down());
    world.give(due("well", 8));
    let now = taken(&world);
    assert!(of(&now, "well").len() >= 5, "beside the tries of the other one");
    assert!(now.iter().all(|(_, it)| it.attempt == 1 || it.body.destination() == Some("gone")));
    assert_eq!(world.engine.open_count(), 28, "none was given up");
}

#[test]
fn a_pause_of_a_key_is_for_all_destinations_and_order_is_for_each__d4_d16_d23() {
    let world = world(Settings::default(), &["a", "b"]);
    let both = |id: &str| {
        [message("a", Some("k"), &format!("a {id}"), START_MS), message("b", Some("k"), &format!("b {id}"), START_MS)]
    };
    world.give([both("1"), both("2")].concat());
    let now = taken(&world);
    assert_eq!((of(&now, "a").len(), of(&now, "b").len()), (1, 1), "a lane is a key at a destination");
    world.give(vec![Item::Pause { key: Some("k".to_owned()), is_paused: true }]);
    for (number, _) in &now {
        world.engine.settle(*number, Verdicts::Delivered, None);
    }
    world.write();
    assert!(taken(&world).is_empty());
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    world.write();
    assert!(taken(&world).is_empty(), "also after a restart");
    world.give(vec![Item::Pause { key: Some("k".to_owned()), is_paused: false }]);
    let now = taken(&world);
    assert_eq!((of(&now, "a")[0].body.id(), of(&now, "b")[0].body.id()), ("a 2", "b 2"));
}

#[test]
fn after_a_crash_only_what_was_in_memory_may_have_arrived__d5_d23() {
    let bounds = Bounds { messages: 20, ..Bounds::default() };
    let world = world(Settings { bounds, ..Settings::default() }, &["a", "b"]);
    world.give([due("a", 50), due("b", 50)].concat());
    world.write();
    let sent: Vec<i64> = taken(&world).iter().map(|(_, it)| it.seq).collect();
    let world = world.again();
    let suspects = world.engine.with_store(|store| store.may_have_arrived()).unwrap();
    assert!(sent.iter().all(|seq| suspects.iter().any(|it| it.seq == *seq)), "{sent:?}");
    assert!(suspects.len() <= 20, "{}", suspects.len());
}

/// A message that is refused leaves memory for 20 s, and there is room for few.
fn small() -> Settings {
    let retry = Retry { max_attempts: 4, waits_ms: vec![20_000], ..Retry::default() };
    Settings { retry, bounds: Bounds { messages: 100, ..Bounds::default() }, ..Settings::default() }
}

/// Destinations with nothing to do leave memory at once.
fn forgetting() -> Settings {
    Settings { limits: Limits { idle_shares: 0, ..Limits::default() }, ..Settings::default() }
}

fn without_key(to: &str, count: usize) -> Vec<Item> {
    (0..count).map(|number| message(to, None, &format!("{to} {number:04}"), START_MS)).collect()
}

fn in_memory(world: &ByHand) -> usize {
    world.engine.lock_dispatcher().window.named_shares()
}

#[test]
fn what_one_has_parked_takes_no_room_from_another_one__d6_d23() {
    let world = world(small(), &["stuck", "well"]);
    world.give(without_key("stuck", 60));
    let refused = |_: &Delivery| Verdict::Refused("no".to_owned());
    assert_eq!(world.deliver(refused).len(), 60);
    world.give(vec![pause("stuck", true)]);
    world.advance_ms(1_000);
    world.give(without_key("well", 5));
    assert_eq!(world.deliver(refused).len(), 5);
    assert_eq!(world.engine.in_memory(), (0, 0), "all are parked");
    let back = |after_ms| {
        world.advance_ms(after_ms);
        assert!(taken(&world).is_empty(), "they are in the store");
        world.write();
        taken(&world)
    };
    assert!(back(19_000).is_empty(), "it is paused");
    assert!((1..60).contains(&world.engine.in_memory().0), "there is room for some of them");
    assert_eq!(of(&back(1_000), "well").len(), 5, "behind those of the other one in the store");
}

#[test]
fn an_outage_of_one_ends_in_time_while_another_one_has_parked_messages__d6_d23() {
    let world = world(small(), &["gone", "stuck"]);
    world.give(due("stuck", 60));
    assert_eq!(world.deliver(|_| Verdict::Refused("no".to_owned())).len(), 60);
    world.give(vec![pause("stuck", true)]);
    world.advance_ms(20_000);
    world.write(); // it wants more messages back than there is room for
    world.give(without_key("gone", 6));
    let mut events = Vec::new();
    for _ in 0..12 {
        world.deliver(|_| Verdict::Unreachable { reason: "away".to_owned(), retry_after_ms: None });
        world.advance_ms(100);
        events.extend(world.engine.take_events());
    }
    assert!(events.contains(&Event::Down { destination: Some("gone".to_owned()), reason: "away".to_owned() }));
    let cancel = |id| Item::Cancel(Cancel { id: format!("gone {id:04}"), key: None, keep_days: 0 });
    assert!(world.give((0..6).map(cancel).collect()).iter().all(|answer| *answer == Answer::Cancelled));
    let mut ended = None;
    for second in 0..10 {
        world.pass_ms(1_000, arrives);
        let is_up = |it: &Event| matches!(it, Event::Up { destination: Some(name), .. } if name == "gone");
        ended = ended.or(world.engine.take_events().iter().any(is_up).then_some(second));
    }
    assert!(ended.is_some_and(|second| second <= 3), "{ended:?}: two rounds found nothing to try");
}

#[test]
fn one_that_has_nothing_to_do_leaves_memory_and_its_messages_go_out_at_their_time__d3_d8_d23() {
    let names: Vec<String> = (0..100).map(|number| format!("d{number}")).collect();
    let mut world = world(forgetting(), &names.iter().map(String::as_str).collect::<Vec<_>>());
    for round in 0..3 {
        let due_ms = world.wall_ms();
        let each = |kind: &'static str, due_ms| {
            let key = format!("{kind} {round}");
            names.iter().map(move |name| message(name, Some(&key), &format!("{name} {key}"), due_ms))
        };
        world.give(each("later", due_ms + 3_600_000).collect());
        assert_eq!(in_memory(&world), 0, "nothing is due soon");
        world.give(each("now", due_ms).collect());
        assert_eq!(world.deliver(arrives).len(), 100);
        (0..20).for_each(|_| world.write());
        assert_eq!(in_memory(&world), 0);
        if round == 1 {
            world = world.again();
            world.engine.take_named(TakesNamed::All).unwrap();
            world.write();
            assert_eq!(in_memory(&world), 0, "also after a restart");
        }
        let sent = world.pass_ms(3_700_000, arrives);
        assert_eq!(sent.len(), 100);
        assert!(sent.iter().all(|it| it.lateness_us == 0 && !it.redelivered), "{:?}", sent[0]);
    }
    assert_eq!(world.engine.open_count(), 0);
}

#[test]
fn one_that_left_memory_has_sent_nothing_since__d5_d23() {
    let world = world(forgetting(), &["a"]);
    world.give(due("a", 5));
    assert_eq!(world.deliver(arrives).len(), 5);
    (0..20).for_each(|_| world.write());
    assert_eq!(in_memory(&world), 0);
    world.step_wall_clock_ms(-60_000);
    world.engine.follow_clock();
    world.give(vec![message("a", None, "x", START_MS)]); // due before its last cursor, and not soon
    assert_eq!(in_memory(&world), 0);
    let world = world.again();
    assert!(world.engine.with_store(|store| store.may_have_arrived()).unwrap().is_empty());
    let sent = world.pass_ms(61_000, arrives);
    assert_eq!((sent.len(), sent[0].redelivered), (1, false));
}

#[test]
fn the_first_message_of_one_out_of_memory_is_not_written_and_read_again__d8_d23() {
    let world = world(forgetting(), &["a", "b"]);
    for id in ["first", "second"] {
        world.give(vec![message("a", None, id, world.wall_ms())]);
        let rows = |share| world.engine.with_store(|store| store.plan(share, (i64::MIN, 0), i64::MAX, 10)).unwrap();
        assert!(rows(1).is_empty() && rows(2).is_empty());
        assert_eq!(world.deliver(arrives).len(), 1);
        (0..20).for_each(|_| world.write());
        assert_eq!(in_memory(&world), 0);
        world.pass_ms(100_000, arrives);
    }
}

fn remove(name: &str, dead: bool) -> Item {
    Item::RemoveDestination { name: name.to_owned(), dead }
}

/// Which of these are dead letters, whatever waits, and that each says why.
fn dead_of(world: &ByHand, name: &str) -> Vec<String> {
    let found = world.engine.with_store(|store| store.unwritten_letters()).unwrap().0;
    let reason = format!("its destination {name} was removed");
    assert!(found.iter().all(|letter| letter.reason == reason), "{:?}", found.first());
    let id = |letter: &crate::Letter| {
        let record = String::from_utf8(letter.record.clone()).unwrap();
        assert!(record.contains(&format!("\"destination\":\"{name}\"")), "{record}");
        record.split('"').nth(3).unwrap().to_owned()
    };
    found.iter().map(id).collect()
}

#[test]
fn one_with_messages_is_not_removed_and_one_without_is_gone__d23() {
    let world = world(Settings::default(), &["a", "b"]);
    world.give(vec![message("a", None, "far", START_MS + 86_400_000), message("b", None, "now", START_MS)]);
    assert_eq!(world.give(vec![remove("a", false), remove("b", false), remove("c", false)])[..2], [Answer::Refused; 2]);
    assert_eq!(world.give(vec![remove("c", true)]), [Answer::Unknown]);
    let now = taken(&world);
    assert_eq!(world.give(vec![remove("b", false)]), [Answer::Refused], "it is being sent");
    world.engine.settle(now[0].0, Verdicts::Delivered, None);
    world.write();
    assert_eq!(world.give(vec![remove("b", false)]), [Answer::Removed]);
    assert_eq!(world.give(vec![message("b", None, "late", START_MS)]), [Answer::Refused]);
    let number = |world: &ByHand| world.engine.with_store(|store| store.destination("b").map(|it| it.share));
    assert_eq!(world.give(vec![set("b", "")]), [Answer::Accepted], "the name is free");
    assert_eq!(number(&world), Some(3), "and stands for another destination");
}

#[test]
fn all_messages_of_a_removed_one_are_dead_letters_near_and_far_and_no_others__d23() {
    for restarts in [false, true] {
        let world = world(Settings::default(), &["gone", "well"]);
        let many = |to: &str, after_ms: i64| {
            let put = |n: i64| {
                let key = (n % 3 > 0).then(|| format!("k{}", n % 7));
                message(to, key.as_deref(), &format!("{to} {after_ms} {n}"), START_MS + after_ms + n)
            };
            (0..300).map(put).collect::<Vec<_>>()
        };
        world.give([many("gone", 0), many("gone", 5_000), many("gone", 86_400_000), many("well", 5_000)].concat());
        let now = taken(&world);
        assert_eq!(of(&now, "gone").len(), now.len());
        assert_eq!(world.give(vec![remove("gone", true)]), [Answer::Removed]);
        assert!(taken(&world).is_empty(), "nothing more is sent");
        assert_eq!(world.give(vec![message("gone", None, "late", START_MS)]), [Answer::Refused]);
        world.write();
        let waiting = if restarts { now.len() } else { 0 };
        for (number, (flight, _)) in now.iter().enumerate() {
            let refused = vec![Verdict::Refused("404".to_owned())];
            match number % 3 {
                _ if restarts => {}
                0 => world.engine.settle(*flight, Verdicts::Delivered, None),
                1 => world.engine.settle(*flight, Verdicts::Each(refused), None),
                _ => world.engine.settle(*flight, Verdicts::Each(vec![]), None),
            }
        }
        world.write();
        let arrived = if restarts { 0 } else { now.len().div_ceil(3) };
        assert_eq!(world.engine.open_count() as usize, 300 + waiting);
        let dead = dead_of(&world, "gone").len();
        let world = world.again();
        world.engine.take_named(TakesNamed::All).unwrap();
        world.begin();
        world.write();
        assert_eq!(world.engine.open_count(), 300);
        assert_eq!(dead + waiting, 900 - arrived);
        assert_eq!(world.engine.with_store(|store| store.removed_destination().cloned()), None, "its row is gone");
        world.advance_ms(6_000);
        world.write();
        let now = taken(&world);
        assert!(!now.is_empty() && of(&now, "well").len() == now.len());
        assert_whole(&world.store(), Digest::number);
    }
}

#[test]
fn a_recurring_message_of_a_removed_one_ends_as_one_dead_letter__d19_d23() {
    let world = world(Settings::default(), &["gone"]);
    let line = br#"{"id":"r","every":1,"due":1700000000000,"missed":"all","payload":1,"destination":"gone"}"#;
    let schema = crate::message::fields::Schema::new(crate::message::columns::Columns::default(), 1_000);
    let fields = crate::formats::ndjson::fields_of(std::str::from_utf8(line).unwrap(), &schema).unwrap();
    let crate::message::fields::Request::Message(rule) = schema.check(&fields, Some(START_MS * 1_000_000)).unwrap()
    else {
        panic!()
    };
    assert_eq!(world.give(vec![Item::Put(Incoming::of(rule))]), [Answer::Accepted]);
    assert_eq!(world.give(vec![remove("gone", true)]), [Answer::Removed]);
    world.write();
    assert_eq!((dead_of(&world, "gone"), world.engine.open_count()), (vec!["r".to_owned()], 0));
}

#[test]
fn a_dead_letter_whose_destination_is_not_set_any_more_says_so_when_it_is_requeued__d16_d23() {
    let world = world(Settings::default(), &["gone", "well"]);
    let requeue = || Item::Requeue { id: "a".to_owned(), key: None };
    world.give(vec![message("gone", None, "a", START_MS + 86_400_000), remove("gone", true)]);
    world.write();
    assert_eq!(world.give(vec![requeue()]), [Answer::Refused]);
    assert_eq!(world.give(vec![set("gone", ""), requeue()]), [Answer::Accepted, Answer::Requeued]);
}

#[test]
fn dead_letters_wait_for_the_start_because_only_a_deliverer_tells_them__d2_d23() {
    let world = world(Settings::default(), &["gone"]);
    world.give(vec![message("gone", None, "a", START_MS + 86_400_000)]);
    let world = world.reopen();
    assert_eq!(world.give(vec![remove("gone", true)]), [Answer::Removed]);
    assert_eq!(world.engine.open_count(), 1);
    world.begin();
    world.write();
    assert_eq!((dead_of(&world, "gone"), world.engine.open_count()), (vec!["a".to_owned()], 0));
}

#[test]
fn secrets_stay_until_a_change_names_others_and_are_never_read_back__d12_d23() {
    const SECRET: &str = r#","secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#;
    let world = world(Settings::default(), &["a"]);
    let stored = |world: &ByHand| {
        let text = world.engine.with_store(|store| store.destination("a").unwrap().settings.to_string());
        let shown = world.engine.destinations().unwrap().remove("a").unwrap();
        assert_eq!(shown.secrets, None);
        (text.contains("whsec_"), shown.secrets_set, shown.paused)
    };
    assert_eq!(stored(&world), (false, None, Some(false)));
    world.give(vec![set("a", SECRET)]);
    let (has_secret, set_at, _) = stored(&world);
    assert!(has_secret && set_at.is_some());
    world.advance_ms(5_000);
    world.give(vec![set("a", r#","paused":true,"secrets_set":"yesterday""#)]);
    assert_eq!(stored(&world), (true, set_at.clone(), Some(true)), "a change of something else");
    world.give(vec![set("a", SECRET)]);
    assert_eq!(stored(&world), (true, set_at.clone(), Some(true)), "it is set already");
    world.give(vec![set("a", r#","secrets":["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]"#)]);
    assert!(stored(&world).1 > set_at);
    world.give(vec![set("a", r#","secrets":[]"#)]);
    assert_eq!(stored(&world), (false, None, Some(true)));
    assert_eq!(world.give(vec![set("a", SECRET), remove("a", false), set("a", "")])[1], Answer::Removed);
    assert_eq!(stored(&world), (false, None, Some(false)), "a removal takes them away, and the pause");
}

#[test]
fn a_pause_changes_nothing_else_and_a_change_of_settings_leaves_it__d16_d23() {
    const NUMBERS: &str = r#","body":{"n":1.50,"e":1E2},"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#;
    let world = world(Settings::default(), &["a", "b"]);
    world.give(vec![set("a", NUMBERS)]);
    let stored = |world: &ByHand| {
        let found = world.engine.with_store(|store| store.destination("a").unwrap().clone());
        (found.settings, found.paused_ms.is_some())
    };
    let (settings, _) = stored(&world);
    assert!(settings.contains(r#"{"n":1.50,"e":1E2}"#), "{settings}");
    world.give([due("a", 3), due("b", 3)].concat());
    assert_eq!(world.give(vec![pause("a", true), pause("nobody", true)]), [Answer::Paused, Answer::Unknown]);
    assert_eq!(stored(&world), (settings.clone(), true));
    assert_eq!(of(&taken(&world), "a").len(), 0);
    world.give(vec![set("a", NUMBERS)]);
    assert!(stored(&world).1 && taken(&world).is_empty());
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    world.write();
    assert_eq!(of(&taken(&world), "a").len(), 0, "also after a restart");
    let both = vec![set("a", r#","rate":"9/s""#), pause("a", false), pause("nobody", false)];
    assert_eq!(world.give(both), [Answer::Replaced, Answer::Resumed, Answer::Unknown]);
    let (settings, is_paused) = stored(&world);
    assert!(settings.contains(r#""rate":"9/s""#) && settings.contains("whsec_") && !is_paused, "{settings}");
    assert_eq!(of(&taken(&world), "a").len(), 1, "of 9/s");
}

#[test]
fn a_pause_is_counted_since_its_first_request_until_its_end__d16_d23() {
    let world = world(Settings::default(), &["a"]);
    let since = |world: &ByHand| world.engine.destination_figures(None, 1).unwrap().1[0].paused_since_ms;
    world.give(vec![pause("a", true)]);
    let first = since(&world);
    assert_eq!(first, Some(world.wall_ms()));
    world.advance_ms(5_000);
    world.give(vec![pause("a", true), set("a", r#","paused":true"#)]);
    assert_eq!(since(&world), first);
    world.give(vec![pause("a", false)]);
    assert_eq!(since(&world), None);
}

#[test]
fn one_that_is_removed_while_it_is_down_leaves_nothing__d6_d23() {
    let world = world(Settings::default(), &["gone"]);
    for _ in 0..2 {
        let keyed = |n: i64| message("gone", Some(&format!("k{n}")), &format!("{n} {}", world.wall_ms()), START_MS);
        world.give((0..60).map(keyed).collect());
        world.pass_ms(5_000, |_| Verdict::Unreachable { reason: "away".to_owned(), retry_after_ms: None });
        assert_eq!((world.engine.destinations_down(), world.engine.lock_dispatcher().keys_in_doubt() > 0), (1, true));
        assert_eq!(world.give(vec![remove("gone", true)]), [Answer::Removed]);
        (0..5).for_each(|_| world.write());
        assert_eq!((world.engine.open_count(), world.engine.destinations_down()), (0, 0));
        assert_eq!(world.engine.lock_dispatcher().keys_in_doubt(), 0);
        assert_eq!(world.give(vec![set("gone", "")]), [Answer::Accepted]);
    }
    world.give(vec![message("gone", Some("k1"), "new", START_MS)]);
    assert_eq!(world.deliver(arrives).len(), 1);
}

/// The same without an outage: what was queued keeps its share in memory.
#[test]
fn one_that_is_removed_with_a_queue_leaves_memory__d23() {
    let world = world(forgetting(), &["gone"]);
    world.give(due("gone", 20));
    let (number, _) = world.engine.take(1, usize::MAX, true).unwrap();
    world.engine.settle(number, Verdicts::Delivered, None); // the others are in the queue
    assert_eq!(world.give(vec![remove("gone", true)]), [Answer::Removed]);
    world.pass_ms(600_000, arrives);
    (0..20).for_each(|_| world.write());
    assert_eq!(world.engine.open_count(), 0);
    assert_eq!(world.engine.lock_dispatcher().window.named_shares(), 0);
}

/// Two series of one name.
#[test]
fn measures_have_each_name_once_after_a_removal__d15_d23() {
    let world = world(Settings::default(), &["acme"]);
    world.give(due("acme", 1));
    world.deliver(arrives);
    assert_eq!(world.give(vec![remove("acme", false), set("acme", "")]), [Answer::Removed, Answer::Accepted]);
    world.give(vec![message("acme", None, "new", START_MS)]);
    world.deliver(arrives);
    let names: Vec<_> = world.engine.destination_measures(1_000).unwrap().1.into_iter().map(|it| it.name).collect();
    assert_eq!(names, [Some("acme".to_owned()), None]);
}

/// Two destinations draw the same random waits.
#[test]
fn two_destinations_draw_other_waits__d6_d23() {
    let world = world(Settings::default(), &["a", "b"]);
    world.give(vec![message("a", None, "a", START_MS), message("b", None, "b", START_MS)]);
    world.deliver(|_| Verdict::Refused("no".to_owned()));
    let next = |id: &str| {
        let names = [id.to_owned()];
        world.engine.destination_figures(Some(&names), 1).unwrap().1[0].next_try_ms
    };
    assert_ne!(next("a"), next("b"));
}
