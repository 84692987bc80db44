//! A store as its snapshots show it.

use std::fs;

use super::making::{Shelf, TINY, cancel_of, commit, done, held, incoming, incoming_with};
use crate::base::open_stores::{FileId, Opened, alone};
use crate::message::Message;
use crate::message::incoming::Incoming;
use crate::message::shares::share_of;
use crate::store::file::locked_file::beside;
use crate::store::look::analysis::Late;
use crate::store::look::messages::PageOf;
use crate::store::look::snapshot::Snapshot;
use crate::store::tables::tenants::{NOT_KNOWN, of_shares};
use crate::store::{Attempts, Done, Filter, Letter, Limits, Outcome, Store, StoredDestination, WaitingRow, sql};

const ALL: PageOf<'_> = PageOf {
    key: None,
    destination: None,
    tenant: None,
    until: None,
    due_from_ms: None,
    due_before_ms: None,
    limit: 100,
    looked_at: 100,
};

/// A store with messages 1 to `count`, due at these numbers, of the keys `a` and `b` in turn. Those up to `held_until` have a
/// row in `waiting`.
fn store_with(shelf: &Shelf, count: i64, held_until: i64) -> Store {
    let mut store = shelf.open();
    commit(&mut store, |store| {
        let key = |seq: i64| Some(if seq % 2 == 1 { "a" } else { "b" });
        let items: Vec<_> = (1..=count).map(|seq| incoming_with(key(seq), &seq.to_string(), seq, b"1")).collect();
        store.accept(&items, 0).unwrap();
        let rows: Vec<_> = (1..=held_until).map(|seq| held(seq, seq, items[seq as usize - 1].lane)).collect();
        store.hold(&rows).unwrap();
    });
    store
}

fn letter_of(seq: i64) -> Letter {
    Letter {
        source: "delivery".into(),
        line: seq,
        reason: "why".into(),
        allowed: "what".into(),
        record: b"{}".to_vec(),
    }
}

fn look(shelf: &Shelf) -> Snapshot {
    Snapshot::open(&shelf.path()).unwrap()
}

#[test]
fn a_page_ends_early_where_its_names_take_much_memory__d8() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    let id = |seq: i64| format!("{seq}{}", "x".repeat(1 << 20));
    commit(&mut store, |store| {
        let items: Vec<_> = (1..=10).map(|seq| incoming_with(None, &id(seq), seq, b"1")).collect();
        store.accept(&items, 0).unwrap();
        store.hold(&(1..=10).map(|seq| held(seq, seq, None)).collect::<Vec<_>>()).unwrap();
    });
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let (seen, next) = look(&shelf).waiting(ALL, after).unwrap();
        pages.push(seen.iter().map(|it| it.seq).collect::<Vec<_>>());
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]]);
    commit(&mut store, |store| {
        store.finish(&(1..=10).map(|seq| done(seq, seq, Outcome::Delivered, 9)).collect::<Vec<_>>()).unwrap();
    });
    let (seen, next) = look(&shelf).ended(Outcome::Delivered, ALL, None).unwrap();
    assert_eq!((seen.len(), next.is_some()), (4, true));
    let (seen, _) = look(&shelf).ended(Outcome::Delivered, ALL, next).unwrap();
    assert_eq!(seen.iter().map(|it| it.seq).collect::<Vec<_>>(), [6, 5, 4, 3]);
}

#[test]
fn a_second_name_of_an_open_store_is_refused_also_beside_a_copy_of_its_log__d9() {
    let shelf = Shelf::new(Limits::default());
    drop(store_with(&shelf, 1, 0)); // the file alone is a store
    let mut store = shelf.open();
    let path = shelf.path();
    let _open = alone(|| Opened::note(FileId::at(&path).unwrap())).unwrap(); // as its owner does
    let other = path.with_file_name("other.db");
    fs::hard_link(&path, &other).unwrap();
    fs::copy(beside(&path, "-wal"), beside(&other, "-wal")).unwrap();
    commit(&mut store, |store| drop(store.accept(&[incoming("2", 2)], 0).unwrap()));
    let refused = Snapshot::open(&other).err().expect("the copy has one message").to_string();
    assert!(refused.contains(" has 2 names (hard links), and its log "), "{refused}");
    assert_eq!(look(&shelf).status(&[]).unwrap().waiting, 2, "under the name of the open store");
}

#[test]
fn what_had_no_answer_may_have_arrived_wherever_it_waits__d14_d5() {
    let shelf = Shelf::new(Limits::default());
    let mut store = store_with(&shelf, 6, 3);
    commit(&mut store, |store| {
        store.note_may_have_arrived(&[(1, 1), (2, 2)]).unwrap();
        let tried =
            |seq, is_unanswered| Attempts { attempts: 1, next_ms: Some(9), is_unanswered, ..Attempts::none(seq, 0) };
        store.note_attempts(&[tried(2, true), tried(3, true), tried(4, true), tried(5, false)]).unwrap();
    });
    let snapshot = look(&shelf);
    let (seen, _) = snapshot.waiting(ALL, None).unwrap();
    let expected = [true, true, true, true, false, false];
    assert_eq!(seen.iter().map(|it| it.may_have_arrived).collect::<Vec<_>>(), expected);
    for (seen, key) in seen.iter().zip(["a", "b"].into_iter().cycle()) {
        assert_eq!(&snapshot.show(Some(key), &seen.id).unwrap().unwrap().seen, seen);
    }
    let status = snapshot.status(&[4]).unwrap();
    assert_eq!((status.may_have_arrived, status.retrying, status.waiting, status.due_before), (4, 4, 6, vec![3]));
    assert_eq!(snapshot.counts(4, 10).unwrap().may_have_arrived, 4);
    let open = snapshot.open_slice((0, 0), (9, 9), (0, 9)).unwrap();
    assert_eq!(open.iter().filter(|it| it.may_have_arrived).count(), 4);
}

#[test]
fn a_page_says_how_far_the_call_looked__d14() {
    let shelf = Shelf::new(Limits::default());
    let _store = store_with(&shelf, 8, 6);
    let snapshot = look(&shelf);
    let page = |limit, looked_at, after| {
        let (seen, next) = snapshot.waiting(PageOf { key: Some("b"), limit, looked_at, ..ALL }, after).unwrap();
        (seen.iter().map(|it| it.seq).collect::<Vec<_>>(), next)
    };
    assert_eq!(page(5, 3, None), (vec![2], Some((3, 3))), "three rows were read");
    assert_eq!(page(5, 3, Some((3, 3))), (vec![4, 6], Some((6, 6))));
    assert_eq!(page(5, 3, Some((6, 6))), (vec![8], None), "near messages");
    assert_eq!(page(1, 3, Some((3, 3))), (vec![4], Some((4, 4))), "the page is full");
}

#[test]
fn a_dead_message_that_came_again_is_neither_counted_nor_listed_as_dead__d14_d16() {
    let shelf = Shelf::new(Limits::default());
    let mut store = store_with(&shelf, 3, 0);
    commit(&mut store, |store| {
        store.finish(&[1, 2, 3].map(|seq| done(seq, seq, Outcome::Dead, 9))).unwrap();
        store.put_letters(&[letter_of(2)], 9).unwrap();
        store.accept(&[incoming_with(Some("a"), "1", 70, b"1"), incoming("1", 70)], 9).unwrap();
    });
    let snapshot = look(&shelf);
    let status = snapshot.status(&[]).unwrap();
    assert_eq!((status.dead, status.dead_letters, status.waiting), (2, 1, 2));
    let (dead, _) = snapshot.ended(Outcome::Dead, ALL, None).unwrap();
    let dead: Vec<_> = dead.iter().map(|it| (it.seq, it.last_error.as_deref())).collect();
    assert_eq!(dead, [(3, None), (2, Some("why"))], "the store has forgotten the letter of the third");
    assert_eq!(snapshot.unwritten_letters().unwrap(), 1);
    let [kept] = &snapshot.letters(i64::MAX, None, None, 5, 1).unwrap()[..] else { panic!("there is one") };
    assert_eq!((kept.n, kept.letter.line, &kept.letter.record[..]), (1, 2, &b"{"[..]));
}

#[test]
fn lateness_is_by_nearest_rank_in_each_step__d11() {
    let shelf = Shelf::new(Limits::default());
    let mut store = store_with(&shelf, 10, 0);
    commit(&mut store, |store| {
        let late = |seq| Done { lateness_us: Some(seq * 10), ..done(seq, seq, Outcome::Delivered, 10 + seq / 9 * 100) };
        store.finish(&(1..=10).map(late).collect::<Vec<_>>()).unwrap();
    });
    let snapshot = look(&shelf);
    assert_eq!(snapshot.arrivals().unwrap(), Some((10, 10, 110)));
    let first = Late { start_ms: 0, messages: 8, lateness_us: [40, 80, 80, 80] };
    let second = Late { start_ms: 100, messages: 2, lateness_us: [90, 100, 100, 100] };
    assert_eq!(snapshot.lateness_by_step(100).unwrap(), [first, second]);
    assert_eq!(snapshot.lateness_by_size(&[10, 20, 50, 1_000]).unwrap(), [1, 1, 3, 5]);
}

#[test]
fn slices_are_of_one_state_although_messages_end_meanwhile__s6() {
    let shelf = Shelf::new(Limits::default());
    let mut store = store_with(&shelf, 5, 2);
    commit(&mut store, |store| store.finish(&[done(1, 1, Outcome::Delivered, 9)]).unwrap());
    let before = look(&shelf).extent().unwrap();
    assert_eq!((before.first_n, before.last_n, before.last_seq), (1, 1, 5));
    commit(&mut store, |store| {
        store.finish(&[done(2, 2, Outcome::Delivered, 9), done(3, 3, Outcome::Cancelled, 9)]).unwrap();
        store.accept(&[incoming("later", 4)], 9).unwrap();
    });
    let snapshot = look(&shelf);
    let seqs = |found: Vec<super::super::look::message::Seen>| {
        let mut seqs: Vec<_> = found.iter().map(|it| it.seq).collect();
        seqs.sort_unstable();
        seqs
    };
    let until = (before.last_n, before.last_seq);
    assert_eq!(seqs(snapshot.ended_slice(0, before.last_n).unwrap()), [1]);
    assert_eq!(seqs(snapshot.open_slice((0, 0), (4, 4), until).unwrap()), [2, 3, 4]);
    assert_eq!(seqs(snapshot.open_slice((4, 4), (9, 9), until).unwrap()), [5]);
    assert_eq!(snapshot.open_after((0, 0), 2).unwrap(), Some((4, 6)));
    assert_eq!(snapshot.open_after((4, 6), 2).unwrap(), None);
}

#[test]
fn bytes_that_are_not_utf_8_are_shown_and_nothing_is_written__d5() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    commit(&mut store, |store| {
        store.accept(&[incoming("a", 5)], 0).unwrap();
        let row = WaitingRow { redelivered: true, ..held(1, 5, None) };
        store.hold(&[row]).unwrap();
        store.db.execute("UPDATE messages SET id = CAST(x'61ff' AS TEXT)", []).unwrap();
    });
    let snapshot = look(&shelf);
    assert_eq!(snapshot.waiting(ALL, None).unwrap().0[0].id, "a\u{fffd}");
    let error = snapshot.ask(|db| db.execute("DELETE FROM messages", [])).unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

/// A store with rows of `waiting` that are due at 1, 2 and so on: of so many tenants at destination 1, then one at destination 2.
fn store_of_tenants(shelf: &Shelf, count: i64) -> Store {
    let mut store = shelf.open();
    commit(&mut store, |store| {
        for name in ["x", "y"] {
            let settings = "{}".into();
            store.put_destination(StoredDestination { name: name.into(), settings, ..Default::default() }).unwrap();
        }
        let shares: Vec<_> = (1..=count).map(|it| (share_of(1, it), it)).chain([(2, count + 1)]).collect();
        let of = |(share, due_ms): &(i64, i64)| {
            let message = incoming(&due_ms.to_string(), *due_ms).message;
            let body = message.body.with(|extras| extras.share = *share);
            Incoming::of(Message { body, ..message })
        };
        let items: Vec<_> = shares.iter().map(of).collect();
        (1..=count).for_each(|it| assert_eq!(store.tenant(&it.to_string()).unwrap(), it));
        store.accept(&items, 0).unwrap();
        let rows = shares.iter().map(|(share, it)| WaitingRow { share: *share, ..held(*it, *it, None) });
        store.hold(&rows.collect::<Vec<_>>()).unwrap();
    });
    store
}

const OF_X: PageOf<'_> = PageOf { destination: Some("x"), ..ALL };

#[test]
fn a_page_reads_the_index_of_shares_unless_their_rows_are_more_than_it_looks_at__d8_d14_d24() {
    let shelf = Shelf::new(Limits::default());
    let store = store_of_tenants(&shelf, 8);
    let page = |of, after| {
        let (seen, next) = look(&shelf).waiting(of, after).unwrap();
        (seen.iter().map(|it| it.seq).collect::<Vec<_>>(), next)
    };
    sql::seen::take();
    let few = PageOf { looked_at: 8, limit: 5, ..OF_X };
    assert_eq!(page(few, None), (vec![1, 2, 3, 4, 5], Some((5, 5))));
    assert_eq!(page(few, Some((5, 5))), (vec![6, 7, 8], None));
    assert_eq!(page(PageOf { destination: Some("y"), ..few }, None), (vec![9], None), "all of x are before it");
    assert_eq!(page(PageOf { destination: None, tenant: Some("7"), ..few }, None), (vec![7], None));
    assert_eq!(page(PageOf { tenant: Some("7"), ..few }, None), (vec![7], None));
    assert_reads_only_the_index(&store.db, 3);
    let many = PageOf { looked_at: 3, limit: 5, ..OF_X };
    assert_eq!(page(many, None), (vec![1, 2, 3], Some((3, 3))), "three rows were read");
    assert_eq!(page(many, Some((6, 6))), (vec![7, 8], Some((9, 9))), "three rows were read, and one is of y");
    assert_eq!(page(many, Some((9, 9))), (vec![], None));
}

#[test]
fn an_action_on_some_shares_reads_their_index_alone__d8_d16_d24() {
    let shelf = Shelf::new(Limits::default());
    let store = store_of_tenants(&shelf, 8);
    let found = |destination: Option<&str>, tenant: Option<&str>| {
        let (destination, tenant) = (destination.map(str::to_owned), tenant.map(str::to_owned));
        let (mut action, mut parts) = (cancel_of(Filter { destination, tenant, ..Filter::default() }), Vec::new());
        loop {
            let (found, may_be_more) = store.matches(&mut action, None, (3, 9)).unwrap();
            parts.push(found.into_iter().map(|it| it.1).collect::<Vec<_>>());
            if !may_be_more {
                return parts;
            }
        }
    };
    sql::seen::take();
    assert_eq!(found(Some("x"), None), [vec![1, 2, 3], vec![4, 5, 6], vec![7, 8]]);
    assert_eq!(found(Some("y"), None), [[9]]);
    assert_eq!(found(Some("x"), Some("7")), [[7]]);
    assert_eq!(found(None, Some("7")), [[7]]);
    assert_eq!(found(None, Some("nobody")), [[0; 0]]);
    assert_reads_only_the_index(&store.db, 1);
    assert_eq!(found(None, None).concat(), (1..=9).collect::<Vec<_>>());
}

/// The statements since the last look read only the index of shares of `waiting`. There are at least so many.
fn assert_reads_only_the_index(db: &rusqlite::Connection, least: usize) {
    let of_waiting: Vec<_> = sql::seen::take().into_iter().filter(|it| it.contains("FROM waiting")).collect();
    assert!(of_waiting.len() >= least, "{of_waiting:?}");
    for text in of_waiting {
        let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let unknown = vec![rusqlite::types::Null; explain.parameter_count()];
        let plan = explain.query_map(rusqlite::params_from_iter(unknown), |row| row.get::<_, String>(3));
        let steps: Vec<_> = plan.unwrap().map(Result::unwrap).filter(|it| it.contains(" waiting ")).collect();
        assert!(
            !steps.is_empty() && steps.iter().all(|it| it.contains("INDEX waiting_by_share (")),
            "{steps:?}: {text}"
        );
    }
}

#[test]
fn figures_of_destinations_count_all_their_tenants_however_many_there_are__d15_d24() {
    let shelf = Shelf::new(Limits::default());
    let store = store_of_tenants(&shelf, 1);
    let ten_thousand = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 10002) INSERT INTO waiting \
                        (due_ms, seq, size, share) SELECT iif(n < 10002, ?1, 5), ?2 + n, 0, ?3 + n FROM n";
    store.db.execute(ten_thousand, [5, 10, share_of(0, 1) - 1]).unwrap();
    store.db.execute(ten_thousand, [900_000, 20_000, share_of(1, 1) - 1]).unwrap();
    let (_, seen) = look(&shelf).destination_figures(None, 9, 1_000).unwrap();
    let seen: Vec<_> = seen.iter().map(|it| (&*it.name, it.waiting, it.overdue, it.first_due_ms)).collect();
    assert_eq!(seen, [("x", 10_000, 2, Some(1)), ("y", 1, 1, Some(2))], "what is overdue for longest comes first");
}

#[test]
fn of_a_tenant_without_a_number_nothing_is_found__d24() {
    let shelf = Shelf::new(TINY);
    let store = shelf.open();
    assert_eq!(of_shares(&store.db, "share", (Some(NOT_KNOWN), Some(1))).unwrap(), ("0".to_owned(), false));
}
