//! The same as for every chain, and two stores, with a PostgreSQL of the test's own.

mod server;
mod ways;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::super::tests::exercise;
use super::super::{Kind, Replicate, Role};
use crate::scenarios::testing::{LONG, Told, spawn, test_named, wait_until};
use crate::store::Limits;
use crate::{Answer, Deliverer, Destination, Event, Message, Settings, Verdict};
use server::Server;

#[test]
fn a_chain_in_postgresql_does_what_every_chain_does_and_stores_share_a_database() {
    let Some(server) = Server::start("") else { return };
    for store in ["one", "two"] {
        let to = Replicate::to(&server.address(store)).unwrap();
        exercise(&|| to.open().unwrap());
    }
}

#[test]
fn while_postgresql_is_away_nothing_is_answered_or_sent_and_then_all_is() {
    let Some(server) = Server::start("") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (to, arrived) = recording();
    let (replicate, told) = (Some(Replicate::to(&server.address("away")).unwrap()), Told::default());
    let settings = Settings { replicate, observer: Arc::new(told.clone()), ..Settings::default() };
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), to, settings).unwrap();
    deliverer.put(Message::after("later", Duration::from_millis(2_500), "1")).unwrap();
    server.stop();
    let waits = deliverer.submit([Message::after("while it is away", Duration::ZERO, "1")]).unwrap();
    assert!(waits.wait(Some(Duration::from_secs(4))).is_none(), "it would be answered before it is in PostgreSQL");
    assert!(arrived.try_recv().is_err(), "it would be sent without the lease");
    let figures = deliverer.replication().unwrap();
    assert!(figures.role == Role::QuietOwner && figures.lag_ms > 1_000 && figures.trouble.is_some(), "{figures:?}");
    let (deliverer, (answer, answered)) = (Arc::new(deliverer), channel());
    let asked = deliverer.clone();
    spawn(move || answer.send(asked.destinations()));
    let error = answered.recv_timeout(LONG).expect("it does not wait").unwrap_err().to_string();
    assert!(error.contains("nothing could be written"), "{error}");
    assert_eq!((deliverer.len(), deliverer.summary().accepted), (1, 1), "what is on disk is told");
    server.go_on();
    assert!(waits.wait(Some(LONG)).expect("it is answered").is_ok());
    let found: BTreeSet<String> = (0..2).map(|_| arrived.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(found, BTreeSet::from(["later".to_owned(), "while it is away".to_owned()]));
    assert_eq!(deliverer.close(Some(LONG)).unwrap().delivered, 2);
    let told: Vec<Event> = told.events();
    let [waits, goes_on] = &told[..] else { panic!("{told:?}") };
    assert!(matches!(waits, Event::StoreWaits { reason } if reason.contains("nothing could be written")), "{waits:?}");
    assert!(matches!(goes_on, Event::StoreGoesOn { after_ms: 1.. }), "{goes_on:?}");
}

/// The names of the delivered messages.
fn recording() -> (Destination, Receiver<String>) {
    let (send, arrived) = channel();
    let to = Destination::function(move |it| {
        let _ = send.send(it.id().to_owned()); // the test may be over
        Verdict::Delivered
    });
    (to, arrived)
}

/// Another process. It says what it accepts and what it sends.
fn start_child(mode: &str, address: &str, folder: &Path) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&test_named(module_path!(), "child"), "--exact", "--include-ignored", "--nocapture"])
        .env("TICKWHEEL_TEST_CHILD", format!("{mode} {address} {}", folder.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    (child, lines)
}

/// Several owners in a row are killed, and each one's disk is thrown away. They make one base after another.
#[test]
fn a_machine_that_is_lost_with_its_disk_loses_nothing_that_it_accepted() {
    let Some(server) = Server::start("") else { return };
    let mut accepted = BTreeSet::new();
    for round in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, lines) = start_child(&format!("{round}"), &server.address("lost"), folder.path());
        let some = 100 + 37 * round;
        accepted.extend(lines.filter_map(|it| Some(it.strip_prefix("accepted ")?.to_owned())).take(some));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
    }
    assert_eq!(accepted.len(), (0..4).map(|round| 100 + 37 * round).sum::<usize>());
    let folder = tempfile::tempdir().unwrap();
    let (to, arrived) = recording();
    let replicate = Some(Replicate::to(&server.address("lost")).unwrap());
    let settings = Settings { replicate, limits: many_bases(), ..Settings::default() };
    let began = Instant::now();
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), to, settings).unwrap();
    eprintln!("taken over after {:?}", began.elapsed());
    for id in &accepted {
        assert_eq!(deliverer.state(None, id).unwrap(), Answer::Waiting, "{id} is lost");
    }
    assert!(arrived.try_recv().is_err(), "nothing is due");
    let mut chain = Replicate::to(&server.address("lost")).unwrap().open().unwrap();
    wait_until("a base, without rows before it", || {
        let Some(base) = chain.base().unwrap() else { return false };
        let first = chain.read(0).unwrap();
        base.at.n > 50 && first.iter().filter(|it| it.link.n < base.at.n).all(|it| it.kind == Kind::Taken)
    });
    for id in accepted.iter().take(50) {
        deliverer.reschedule(None, id, SystemTime::UNIX_EPOCH).unwrap();
    }
    let delivered: BTreeSet<String> = (0..50).map(|_| arrived.recv_timeout(LONG).unwrap()).collect();
    assert!(delivered.iter().eq(accepted.iter().take(50)));
    deliverer.close(Some(LONG)).unwrap();
}

fn many_bases() -> Limits {
    Limits { base_bytes: 0, base_piece: 50_000, base_look_ms: 10, ..Limits::default() }
}

/// Accepts messages that are due in an hour, and says so, until it is killed.
#[test]
#[ignore = "a process of the test above"]
fn child() {
    let Ok(given) = std::env::var("TICKWHEEL_TEST_CHILD") else { return };
    let [round, address, folder] = given.split(' ').collect::<Vec<_>>()[..] else { panic!("{given}") };
    let replicate = Some(Replicate::to(address).unwrap());
    let settings = Settings { replicate, limits: many_bases(), ..Settings::default() };
    let path = Path::new(folder).join("store.db");
    let to = Destination::function(|it| {
        println!("sent {}", it.id());
        Verdict::Delivered
    });
    let deliverer = Deliverer::open_with(path, to, settings).unwrap();
    let after = Duration::from_secs(if round == "soon" { SOON_S } else { 3_600 });
    for number in 0.. {
        let id = format!("{round}-{number}");
        match deliverer.put(Message::after(&id, after, "1")) {
            Ok(answer) => assert_eq!(answer, Answer::Accepted),
            Err(error) => return println!("ended: {error}"),
        }
        println!("accepted {id}");
    }
}

const SOON_S: u64 = 6;

#[test]
fn an_owner_that_is_stopped_for_longer_than_the_lease_wakes_up_sends_nothing_and_ends() {
    let Some(server) = Server::start("") else { return };
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (mut child, mut lines) = start_child("soon", &server.address("stopped"), folders[0].path());
    let mut accepted: BTreeSet<String> =
        lines.by_ref().filter_map(|it| Some(it.strip_prefix("accepted ")?.to_owned())).take(30).collect();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let (to, arrived) = recording();
    let replicate = Some(Replicate::to(&server.address("stopped")).unwrap());
    let settings = Settings { replicate, ..Settings::default() };
    let deliverer = Deliverer::open_with(folders[1].path().join("store.db"), to, settings).unwrap();
    while !accepted.is_empty() {
        accepted.remove(&arrived.recv_timeout(LONG).unwrap());
    }
    kill_process(pid, Signal::CONT).unwrap();
    let rest: Vec<String> = lines.collect(); // until it ends
    assert!(child.wait().unwrap().success());
    assert!(rest.iter().any(|it| it.starts_with("ended: ") && it.contains("taken the store over")), "{rest:?}");
    assert!(!rest.iter().any(|it| it.starts_with("sent ")), "{rest:?}");
    deliverer.close(Some(LONG)).unwrap();
}

#[test]
fn no_password_is_shown_and_options_of_tls_are_read() {
    for (address, expected) in [
        ("postgresql://u:secret@127.0.0.1:1/d?store=s&nonsense=1", "can't be read"),
        ("postgresql://u:secret@127.0.0.1:1/d?store=s&sslmode=verify-ca", "names are always checked"),
        ("postgresql://u:secret@127.0.0.1:1/d?store=a/b", "a store's name"),
    ] {
        let error = Replicate::to(address).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
    }
    let to = Replicate::to("postgresql://u:secret@127.0.0.1:1/d?store=s&sslmode=verify-full").unwrap();
    let error = to.open().err().expect("nothing listens there");
    assert!(!format!("{error} {to:?}").contains("secret"), "{error}");
    let to = Replicate::to("postgresql://u:secret@127.0.0.1:1/d?store=s&sslrootcert=/nowhere/ca.pem").unwrap();
    let error = to.open().err().expect("there is no such file");
    assert!(error.starts_with("sslrootcert /nowhere/ca.pem: "), "{error}");
}
