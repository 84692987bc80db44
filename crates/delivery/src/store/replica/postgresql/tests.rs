//! The same as for every chain, and two stores, with a PostgreSQL of the test's own.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use super::super::tests::exercise;
use super::Replicate;
use crate::scenarios::testing::{LONG, test_named};
use crate::{Answer, Deliverer, Destination, Message, Settings, Verdict};

/// A server that no other user can reach. It is removed with the test.
struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
}

/// `None`: this machine has no PostgreSQL.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.filter_map(|it| Some(it.ok()?.path().join("bin"))).find(|it| it.join("initdb").exists())
}

/// The server refuses to run as root.
fn as_user(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        return command;
    }
    Command::new(program)
}

impl Server {
    fn start(programs: PathBuf) -> Self {
        let folder = tempfile::Builder::new().prefix("tw-pg-").tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let changed = Command::new("chown").arg("postgres").arg(folder.path()).status().unwrap();
            assert!(changed.success());
        }
        let it = Self { folder, programs };
        it.run("initdb", &["-U", "tick", "-A", "trust", "-EUTF8", "--no-sync"]);
        it.go_on();
        it
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = as_user(&self.programs.join(program));
        let data = self.folder.path().join("data");
        let done = command.arg("-D").arg(data).args(arguments).stdout(Stdio::null()).current_dir(self.folder.path());
        assert!(done.status().unwrap().success(), "{program}");
    }

    fn go_on(&self) {
        let path = self.folder.path().display();
        let options = format!("-c listen_addresses='' -k {path} -c fsync=off");
        self.run("pg_ctl", &["-w", "-t", "60", "-l", &format!("{path}/log"), "-o", &options, "start"]);
    }

    fn stop(&self) {
        self.run("pg_ctl", &["-w", "-m", "immediate", "stop"]);
    }

    fn address(&self, store: &str) -> String {
        let host = self.folder.path().display();
        format!("postgresql://tick@/postgres?host={host}&store={store}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        let _ = as_user(&self.programs.join("pg_ctl")).arg("-D").arg(data).args(["-m", "immediate", "stop"]).output();
    }
}

#[test]
fn a_chain_in_postgresql_does_what_every_chain_does_and_stores_share_a_database() {
    let Some(programs) = programs() else { return eprintln!("there is no PostgreSQL: nothing is tested") };
    let server = Server::start(programs);
    for store in ["one", "two"] {
        let to = Replicate::to(&server.address(store)).unwrap();
        exercise(&|| to.open().unwrap());
    }
}

#[test]
fn while_postgresql_is_away_nothing_is_answered_or_sent_and_then_all_is() {
    let Some(programs) = programs() else { return eprintln!("there is no PostgreSQL: nothing is tested") };
    let server = Server::start(programs);
    let folder = tempfile::tempdir().unwrap();
    let (to, arrived) = recording();
    let settings = Settings { replicate: Some(Replicate::to(&server.address("away")).unwrap()), ..Settings::default() };
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), to, settings).unwrap();
    deliverer.put(Message::after("later", Duration::from_millis(2_500), "1")).unwrap();
    server.stop();
    let waits = deliverer.submit([Message::after("while it is away", Duration::ZERO, "1")]).unwrap();
    assert!(waits.wait(Some(Duration::from_secs(4))).is_none(), "it would be answered before it is in PostgreSQL");
    assert!(arrived.try_recv().is_err(), "it would be sent without the lease");
    server.go_on();
    assert!(waits.wait(Some(LONG)).expect("it is answered").is_ok());
    let found: BTreeSet<String> = (0..2).map(|_| arrived.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(found, BTreeSet::from(["later".to_owned(), "while it is away".to_owned()]));
    assert_eq!(deliverer.close(Some(LONG)).unwrap().delivered, 2);
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

/// Several owners in a row are killed, and each one's disk is thrown away.
#[test]
fn a_machine_that_is_lost_with_its_disk_loses_nothing_that_it_accepted() {
    let Some(programs) = programs() else { return eprintln!("there is no PostgreSQL: nothing is tested") };
    let server = Server::start(programs);
    let mut accepted = BTreeSet::new();
    for round in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&test_named(module_path!(), "child"), "--exact", "--include-ignored", "--nocapture"])
            .env("TICKWHEEL_TEST_CHILD", format!("{round} {} {}", server.address("lost"), folder.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let some = 100 + 37 * round;
        accepted.extend(lines.filter_map(|it| Some(it.strip_prefix("accepted ")?.to_owned())).take(some));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
    }
    assert_eq!(accepted.len(), (0..4).map(|round| 100 + 37 * round).sum::<usize>());
    let folder = tempfile::tempdir().unwrap();
    let (to, arrived) = recording();
    let settings = Settings { replicate: Some(Replicate::to(&server.address("lost")).unwrap()), ..Settings::default() };
    let began = Instant::now();
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), to, settings).unwrap();
    eprintln!("taken over after {:?}", began.elapsed());
    for id in &accepted {
        assert_eq!(deliverer.state(None, id).unwrap(), Answer::Waiting, "{id} is lost");
    }
    assert!(arrived.try_recv().is_err(), "nothing is due");
    for id in accepted.iter().take(50) {
        deliverer.reschedule(None, id, SystemTime::UNIX_EPOCH).unwrap();
    }
    let delivered: BTreeSet<String> = (0..50).map(|_| arrived.recv_timeout(LONG).unwrap()).collect();
    assert!(delivered.iter().eq(accepted.iter().take(50)));
    deliverer.close(Some(LONG)).unwrap();
}

/// Accepts messages that are due in an hour, and says so, until it is killed.
#[test]
#[ignore = "a process of the test above"]
fn child() {
    let Ok(given) = std::env::var("TICKWHEEL_TEST_CHILD") else { return };
    let [round, address, folder] = given.split(' ').collect::<Vec<_>>()[..] else { panic!("{given}") };
    let settings = Settings { replicate: Some(Replicate::to(address).unwrap()), ..Settings::default() };
    let path = Path::new(folder).join("store.db");
    let deliverer = Deliverer::open_with(path, Destination::function(|_| Verdict::Delivered), settings).unwrap();
    for number in 0.. {
        let id = format!("{round}-{number}");
        assert_eq!(deliverer.put(Message::after(&id, Duration::from_secs(3_600), "1")).unwrap(), Answer::Accepted);
        println!("accepted {id}");
    }
}
