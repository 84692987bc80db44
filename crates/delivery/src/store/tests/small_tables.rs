//! Dead letters, inputs, values by name, lateness, odd names, and the log.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::making::{Shelf, TINY, commit, count, incoming, incoming_with, new};
use crate::message::events::Event;
use crate::message::incoming::Incoming;
use crate::message::until::{Cause, Until};
use crate::message::{Body, Message};
use crate::store::{Accepted, Checkpoints, Letter, Limits, Progress};

fn letter(line: i64, bytes: usize) -> Letter {
    Letter { source: "s".into(), line, reason: "r".into(), allowed: "a".into(), record: vec![0xff; bytes] }
}

#[test]
fn letters_are_given_until_they_are_noted_as_written() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    assert_eq!(store.unwritten_letters().unwrap(), (vec![], 0));
    commit(&mut store, |store| store.put_letters(&[letter(1, 1), letter(2, 1)], 5).unwrap());
    drop(store);
    let mut store = shelf.open();
    assert_eq!(store.unwritten_letters().unwrap(), (vec![letter(1, 1), letter(2, 1)], 2));
    commit(&mut store, |store| store.letters_written(2).unwrap());
    commit(&mut store, |store| store.put_letters(&[letter(3, 1)], 5).unwrap());
    assert_eq!(store.unwritten_letters().unwrap(), (vec![letter(3, 1)], 3));
}

#[test]
fn letters_are_bounded_by_bytes() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    let large: Vec<_> = (0..70).map(|line| letter(line, 4 << 20)).collect();
    commit(&mut store, |store| store.put_letters(&large, 5).unwrap());
    for through in 1..=70 {
        let (found, last) = store.unwritten_letters().unwrap();
        assert_eq!((found.len(), last), (1, through), "4 MiB at a time");
        commit(&mut store, |store| store.letters_written(last).unwrap());
    }
    assert_eq!(count(&store, "dead_letters"), 64, "256 MiB are kept");
    drop(store);
    let mut store = shelf.open();
    commit(&mut store, |store| store.put_letters(&[letter(71, 4 << 20)], 5).unwrap());
    commit(&mut store, |store| store.letters_written(71).unwrap());
    assert_eq!(count(&store, "dead_letters"), 64);
}

/// Each letter has the data of the event that let its message go.
#[test]
fn the_data_of_events_counts_to_the_bytes_of_letters__d2_d22() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    commit(&mut store, |store| {
        let n = store.put_event(&Event::of("k", "e", "paid"), &"x".repeat(4 << 20).into()).unwrap();
        let until = Until { names: "paid".into(), cause: Cause::Event(n, "".into()) };
        let body = |id: i64| Body::new(Some("k"), &id.to_string(), b"1", true);
        let of = |id| Message {
            body: body(id).with(|it| it.until = Some(Box::new(until.clone()))),
            due_ms: 5,
            delay_ms: None,
        };
        store.accept(&(1..=70).map(|id| Incoming::of(of(id))).collect::<Vec<_>>(), 0).unwrap();
        let letters: Vec<_> = (1..=70).map(|seq| Letter { source: "delivery".into(), ..letter(seq, 1) }).collect();
        store.put_letters(&letters, 5).unwrap();
        store.drop_letter(70).unwrap();
        store.letters_written(69).unwrap();
    });
    assert_eq!(count(&store, "dead_letters"), 63, "256 MiB are kept");
    let bytes = store.letters.bytes;
    drop(store);
    assert_eq!(shelf.open().letters.bytes, bytes);
}

#[test]
fn inputs_and_values_are_kept() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    let progress = |line| Progress { source: "a\u{301}".into(), line, size: 9, digest: [7; 16] };
    commit(&mut store, |store| {
        store.put_input(&progress(1)).unwrap();
        store.put_input(&progress(2)).unwrap();
        store.put_meta("position", "12:34").unwrap();
    });
    drop(store);
    let store = shelf.open();
    let inputs = store.inputs().unwrap();
    assert_eq!((inputs.len(), &inputs["a\u{301}"]), (1, &progress(2)));
    assert_eq!(store.get_meta::<String>("position").unwrap().as_deref(), Some("12:34"));
    assert_eq!(store.get_meta::<String>("other").unwrap(), None);
}

#[test]
fn odd_texts_are_names_of_their_own_as_id_and_as_key() {
    let odd =
        ["\0", "a\0b", "a\0", "a", "'", "\"; DROP TABLE messages; --", "%_?", "🦊", "é", "e\u{301}", "", "A", "\n"];
    let long = "x".repeat(1 << 20);
    let mut items: Vec<Incoming> = odd.iter().map(|id| incoming_with(None, id, 5, b"1")).collect();
    for key in odd {
        items.extend(odd.iter().map(|id| incoming_with(Some(key), id, 5, b"1")));
    }
    items.extend([incoming(&long, 5), incoming_with(Some(&long), "a", 5, b"1")]);
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    let answers = commit(&mut store, |store| store.accept(&items, 0).unwrap());
    assert_eq!(answers, (1..=items.len() as i64).map(new).collect::<Vec<_>>());
    drop(store);
    let mut store = shelf.open();
    let again = commit(&mut store, |store| store.accept(&items, 0).unwrap());
    assert!(again.iter().all(|answer| matches!(answer, Accepted::Known(_))));
    let bodies = store.bodies(&(1..=items.len() as i64).collect::<Vec<_>>()).unwrap();
    for (item, seq) in items.iter().zip(1..) {
        assert_eq!(bodies[&seq].body, item.message.body);
    }
}

#[test]
fn a_payload_comes_out_as_it_went_in() {
    let payloads: [(&[u8], bool); 7] = [
        (b"", false),
        (b"\0", false),
        (b"\xff\xfe", false),
        (b"1", false),
        (b"1", true),
        (b"\"\\u0000\"", true),
        ("\"é🦊\"".as_bytes(), true),
    ];
    let message = |number: usize, (payload, is_json): (&[u8], bool)| {
        let body = Body::new(None, &number.to_string(), payload, is_json);
        Incoming::of(Message { body, due_ms: 5, delay_ms: None })
    };
    let items: Vec<_> = payloads.iter().enumerate().map(|(number, payload)| message(number, *payload)).collect();
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    commit(&mut store, |store| store.accept(&items, 0).unwrap());
    drop(store);
    let bodies = shelf.open().bodies(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    for ((payload, is_json), seq) in payloads.into_iter().zip(1..) {
        assert_eq!((bodies[&seq].body.payload(), bodies[&seq].body.is_json()), (payload, is_json));
    }
}

#[test]
fn the_log_is_moved_to_its_place_while_the_store_is_open() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    let before = std::fs::metadata(shelf.path()).unwrap().len();
    let checkpoints = Checkpoints::start(&store, Box::new(|error| panic!("{error}"))).unwrap();
    commit(&mut store, |store| store.accept(&[incoming_with(None, "a", 5, &vec![b'x'; 100_000])], 0).unwrap());
    checkpoints.after_commit(&store);
    drop(checkpoints); // the thread finishes its checkpoint first
    let checkpoints = Checkpoints::start(&store, Box::new(|error| panic!("{error}"))).unwrap();
    checkpoints.after_commit(&store);
    while std::fs::metadata(shelf.path()).unwrap().len() < before + 100_000 {
        std::thread::yield_now();
    }
    drop(checkpoints);
}

#[test]
fn a_checkpoint_that_fails_is_reported_once() {
    let shelf = Shelf::new(Limits::default());
    let store = shelf.open();
    let (say, said) = channel();
    let nowhere = shelf.path().join("nowhere.db");
    let report = Box::new(move |error: &crate::base::error::StoreError| say.send(error.to_string()).unwrap());
    let checkpoints = Checkpoints::start_at(&nowhere, None, report).unwrap();
    checkpoints.after_commit(&store);
    let text = said.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(text.contains("nowhere.db can't be used"), "{text}");
    drop(checkpoints);
    assert!(said.recv().is_err(), "once");
}
