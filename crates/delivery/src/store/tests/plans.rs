//! No statement that runs for every message looks at a whole table (D8), by the query plans of SQLite.

use rusqlite::StatementStatus;

use super::making::{Shelf, TINY, cancel_of, commit, done, held, incoming, incoming_with, tidy};
use crate::message::events::Event;
use crate::store::{Attempts, Filter, Letter, Outcome, Progress, StoredDestination, sql};

/// Scans of small tables, and scans along the key up to a limit.
const ALLOWED: [&str; 10] = [
    "SCAN CONSTANT ROW",                    // of no table
    "SCAN cursors",                         // deleted whole, at a clean end
    "SCAN held_back",                       // deleted whole, at a clean end
    "SCAN destinations",                    // once, at the start
    "SCAN days",                            // nine rows at most
    "SCAN inputs",                          // once, at the start
    "SCAN (subquery-1)",                    // as long as a step
    "SCAN run_",                            // the rest of a run, shorter than a step
    "SCAN dead_letters",                    // once, at the start
    "SCAN tenants USING INDEX set_tenants", // once, at the start
];

#[test]
fn nothing_that_a_group_does_looks_at_a_whole_table() {
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    sql::seen::take(); // an opening may look at whole tables
    let items: Vec<_> = (0..70).map(|number| incoming_with(Some("k"), &number.to_string(), number, b"1")).collect();
    let lane = items[0].lane;
    for _ in 0..3 {
        commit(&mut store, |store| {
            store.remember_cancel(None, "a", 1, None).unwrap();
            store.accept(&items, 0).unwrap();
            store.accept(&[incoming("a", 5)], 0).unwrap();
            let letter =
                Letter { source: "s".into(), line: 1, reason: "r".into(), allowed: "a".into(), record: vec![] };
            store.put_letters(&[letter], 0).unwrap();
            let (_, through) = store.unwritten_letters().unwrap();
            store.letters_written(through).unwrap();
            store.put_input(&Progress { source: "s".into(), line: 1, size: 1, digest: [0; 16] }).unwrap();
            if store.is_near(1) {
                store.hold(&(1..=60).map(|seq| held(seq, seq - 1, lane)).collect::<Vec<_>>()).unwrap();
                let dead: Vec<_> = (1..30).map(|seq| done(seq, seq - 1, Outcome::Dead, 5)).collect();
                store.finish(&dead).unwrap();
                let near: Vec<_> = (61..=68).map(|seq| done(seq, seq - 1, Outcome::Delivered, 5)).collect();
                store.finish(&near).unwrap();
            }
            store.plan(0, (5, 3), 60, 10).unwrap();
            store.plan_lanes(0, &[lane.unwrap(), 5], (3, 3), (50, 2), 10).unwrap();
            store.bodies(&[31, 32]).unwrap();
            store.first_due_ms().unwrap();
            store.note_send_limit(Some(9), &[(0, (5, 5))], &[(1, Some((5, 5))), (2, None)]).unwrap();
            let known = store.find(Some("k"), "40").unwrap().unwrap();
            assert!(store.is_open(&known).unwrap());
            store
                .note_attempts(&[Attempts { attempts: 1, counted: 1, next_ms: Some(7), ..Attempts::none(41, 0) }])
                .unwrap();
            assert_eq!(
                store.plan_tried(0, (0, 0), 9, 10).unwrap().len(),
                usize::from(store.find_tried(41).unwrap().is_some())
            );
            store.next_tried_ms(0, 0).unwrap();
            let new = || StoredDestination { name: "d".into(), settings: "{}".into(), ..Default::default() };
            let known = store.destination("d").cloned().unwrap_or_else(new);
            store.put_destination(known).unwrap();
            store.tenant("t").unwrap();
            for (destination, tenant) in [(Some("d"), None), (None, Some("t")), (Some("d"), Some("t"))] {
                let (destination, tenant) = (destination.map(str::to_owned), tenant.map(str::to_owned));
                let filter = Filter { destination, tenant, ..Filter::default() };
                store.matches(&mut cancel_of(filter), None, (9, 9)).unwrap();
            }
            store.next_share(1, 1).unwrap();
            store.take_due(9, 10, |_| None).unwrap();
            store.expect_next(1, (5, 5)).unwrap();
            store.tried_shares().unwrap();
            store.forget_cursor(1).unwrap();
            store.note_may_have_arrived(&[(40, 41)]).unwrap();
            store.may_have_arrived().unwrap();
            store.upkeep(false).unwrap();
        });
        shelf.pass(shelf.keep_ids_ms);
        tidy(&mut store);
    }
    let seen = sql::seen::take();
    assert!(seen.len() > 40, "{}", seen.len());
    let mut scans = Vec::new();
    for text in seen.iter().filter(|text| !text.contains("PRAGMA") && !text.starts_with("BEGIN") && *text != "COMMIT") {
        let Ok(mut explain) = store.db.prepare(&format!("EXPLAIN QUERY PLAN {text}")) else {
            assert!(text.contains("run_"), "{text}"); // it is about a run that is gone
            continue;
        };
        let unknown = vec![rusqlite::types::Null; explain.parameter_count()];
        let details: Vec<String> = explain
            .query_map(rusqlite::params_from_iter(unknown), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for detail in details {
            let is_bounded = text.contains("ORDER BY") && text.contains("LIMIT");
            if detail.starts_with("SCAN") && !is_bounded && !ALLOWED.iter().any(|allowed| detail.starts_with(allowed)) {
                scans.push(format!("{detail}: {text}"));
            }
            assert!(!detail.contains("TEMP B-TREE"), "{detail}: {text}");
        }
    }
    assert_eq!(scans, [""; 0]);
}

/// SQLite would prepare a statement anew for each value that its statistics could know.
#[test]
fn a_statement_is_prepared_once() {
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    let items: Vec<_> = (0..20).map(|number| incoming_with(Some("k"), &number.to_string(), number, b"1")).collect();
    let lane = items[0].lane;
    commit(&mut store, |store| {
        store.accept(&items, 0).unwrap();
        store.hold(&(1..=20).map(|seq| held(seq, seq - 1, lane)).collect::<Vec<_>>()).unwrap();
        store.note_attempts(&[Attempts { attempts: 1, next_ms: Some(7), ..Attempts::none(11, 0) }]).unwrap();
    });
    sql::seen::take();
    for number in 0..5 {
        commit(&mut store, |store| {
            store.plan(0, (number, 3), 60, 10).unwrap();
            store.plan_lanes(0, &[lane.unwrap(), 5], (number, 3), (50, 2), 10).unwrap();
            store.plan_tried(0, (number, 0), 9 + number, 10).unwrap();
            store.find_tried(number).unwrap();
            store.next_tried_ms(0, number).unwrap();
            store.find(Some("k"), &number.to_string()).unwrap().unwrap();
            store.bodies(&[1 + number, 2 + number]).unwrap();
            store.first_due_ms().unwrap();
        });
    }
    let again = |text: &String| store.db.prepare_cached(text).unwrap().get_status(StatementStatus::RePrepare) > 0;
    let seen = sql::seen::take();
    assert!(seen.len() >= 8, "{seen:?}");
    assert_eq!(seen.into_iter().filter(again).collect::<Vec<_>>(), [""; 0]);
}

/// SQLite gives the numbers of forgotten events again.
#[test]
fn events_are_forgotten_with_their_time_also_those_that_come_after_all_others_were__d5_d22() {
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    let events = |store: &crate::store::Store| super::making::count(store, "events");
    for _ in 0..3 {
        commit(&mut store, |store| {
            let of = Event::of("k", "a", "paid").remember(std::time::Duration::from_secs(1));
            for event in [of, Event::of("k", "b", "paid"), Event::of("k", "c", "paid")] {
                let n = store.put_event(&event, &event.data()).unwrap();
                store.has_let_go(n, 0).unwrap();
            }
        });
        assert_eq!(events(&store), 3);
        let data = || store.remembered("k", "paid").unwrap().map(|(_, data)| data.to_string());
        assert_eq!(data().unwrap(), "{\"name\":\"paid\",\"id\":\"a\",\"payload\":null}");
        shelf.pass(shelf.keep_ids_ms + 1);
        commit(&mut store, |store| store.upkeep(false).map(drop).unwrap());
        assert_eq!(events(&store), 0);
    }
}

/// The upkeep of every group looks at events: only at old ones, however many there are.
#[test]
fn what_a_group_reads_of_known_events_does_not_grow_with_them__d8_d22() {
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    commit(&mut store, |store| {
        for id in 0..3_000 {
            let n = store.put_event(&Event::of("k", &id.to_string(), "paid"), &"{}".into()).unwrap();
            store.has_let_go(n, 0).unwrap();
        }
    });
    sql::seen::take();
    commit(&mut store, |store| store.upkeep(false).map(drop).unwrap());
    let steps = |text: &String| store.db.prepare_cached(text).unwrap().get_status(StatementStatus::VmStep);
    let of_events = sql::seen::take().into_iter().filter(|text| text.contains("FROM events"));
    let read: Vec<_> = of_events.map(|text| (steps(&text), text)).collect();
    assert!(!read.is_empty() && read.iter().all(|(steps, _)| *steps < 2_500), "{read:?}");
}
