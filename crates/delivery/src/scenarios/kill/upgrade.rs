//! A process is killed between two steps of the step-up of a store of version 1, and started again (rules D5, D20).
//!
//! Version 1 counts as the first process of the trial: the files have its accepted, cancelled and delivered messages,
//! as if it had been killed too. So the step-up must keep the rules of any kill. An accepted message is known, a
//! cancelled message stays cancelled, and messages that version 1 may have sent are marked. After each kill the store
//! is one complete file, of version 1 or of version 2.

use std::fmt::Write as _;
use std::path::PathBuf;

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use super::*;
use crate::message::incoming::lane_of;

const SCHEMA: &str = include_str!("../../store/upgrade/version_1.sql");

/// Part of a line of the sink that version 1 wrote.
const BY_VERSION_1: &str =
    r#""due":"2020-01-01T00:00:00.000Z","delivered_at":"2020-01-01T00:00:00.001Z","lateness_ms":1.0"#;

/// In their order. Each start before the rename begins the copy anew.
const BEFORE_RENAME: &[&str] =
    &["locked", "log ended", "copy begun", "row", "copied", "copy closed", "copy synced", "linked", "link synced"];
const AFTER_RENAME: &[&str] = &["renamed", "rename synced", "over"];

type Rows = Vec<(String, Vec<Vec<Value>>)>;

/// All rows of all tables.
fn rows(database: &Connection) -> Rows {
    let mut tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let of = |name: &str| -> Vec<Vec<Value>> {
        let mut select = database.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
        let columns = select.column_count();
        let rows = select.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    names.into_iter().map(|name| (name.clone(), of(&name))).collect()
}

/// Version and rows of a copy of a store, so that the store itself stays as it was left.
fn look(store: &Path) -> (i64, Rows) {
    let folder = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal", "-journal"] {
        let from = beside(store, suffix);
        if from.exists() {
            fs::copy(from, folder.path().join(format!("store.db{suffix}"))).unwrap();
        }
    }
    let database = Connection::open(folder.path().join("store.db")).unwrap();
    let ask = |pragma: &str| database.query_row(pragma, [], |row| row.get::<_, Value>(0)).unwrap();
    assert_eq!(ask("PRAGMA integrity_check"), Value::Text("ok".into()));
    let Value::Integer(version) = ask("PRAGMA user_version") else { panic!("a version is a number") };
    (version, rows(&database))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A store of version 1 with this many messages, as a crash left it.
///
/// The first quarter was delivered, except each tenth message, which was cancelled. The rest waits. Version 1 sent the
/// first third of all messages without a commit, and noted that it might send the first half.
pub(super) struct Old {
    pub(super) trial: Trial,
    store: PathBuf,
    rows: Rows,
    messages: u64,
    /// Whether a process got further than the step-up.
    pub(super) was_sent: bool,
}

impl Old {
    pub(super) fn new(messages: u64) -> Self {
        let trial = Trial::new(3_600_000);
        let folder = trial.folder.path();
        let made = tempfile::tempdir().unwrap();
        let made = made.path().join("made.db");
        let mut database = Connection::open(&made).unwrap();
        database.execute_batch(SCHEMA).unwrap();
        for table in ["bodies", "cancels", "dead_letters", "ids", "inputs", "ledger", "messages", "waiting"] {
            database.execute(&format!("DELETE FROM {table}"), []).unwrap();
        }
        let first_due_ms = SystemWallTime.now_us() / 1000 - 20_000;
        let due_of = |number: u64| first_due_ms + number as i64 * 20_000 / messages as i64;
        let texts = fill(&mut database, messages, due_of);
        let store = folder.join("store.db");
        fs::copy(&made, &store).unwrap();
        fs::copy(beside(&made, "-wal"), beside(&store, "-wal")).unwrap();
        fs::write(beside(&store, ".lock"), "4711\n").unwrap();
        for (name, text) in ["submitted", "answered", "out/delivered"].into_iter().zip(texts) {
            fs::write(folder.join(name), text).unwrap();
        }
        let mut old = Self { trial, store, rows: rows(&database), messages, was_sent: false };
        old.trial.note_end();
        old.check_files();
        old
    }

    /// Makes the same with the files in the folder of `trial`.
    pub(super) fn with(&self, trial: Trial, was_sent: bool) -> Self {
        let store = trial.folder.path().join("store.db");
        Self { trial, store, rows: self.rows.clone(), messages: self.messages, was_sent }
    }

    /// Kills the process at the `count`th place of this name within the step-up. The process must get there.
    fn kill_at(&mut self, count: u64, step: &str) {
        self.trial.kill(Duration::from_secs(60), Some(format!("{count}:step up: {step}")));
        assert!(self.trial.missed.is_empty(), "not reached: {step}");
        let version = self.check_files();
        assert_eq!(version, if AFTER_RENAME.contains(&step) { 3 } else { 1 }, "{step}");
    }

    /// Kills the process after this time. Returns whether it was still within the step-up.
    fn kill_after(&mut self, time: Duration) -> bool {
        self.trial.kill(time, None);
        let is_within = self.check_files() == 1;
        self.was_sent |= !is_within;
        is_within
    }

    /// Checks that the store is whole, either unchanged or with all messages of version 1. A backup must be unchanged.
    /// Returns the version of the store.
    pub(super) fn check_files(&self) -> i64 {
        let (version, found) = look(&self.store);
        if version == 1 {
            assert_eq!(found, self.rows, "the old store was changed");
        } else {
            let count = |rows: &Rows| rows.iter().find(|it| it.0 == "messages").map(|it| it.1.len());
            assert!(count(&found) >= count(&self.rows), "messages are missing");
        }
        let backup = beside(&self.store, ".version-1");
        if version != 1 || backup.exists() {
            assert_eq!(look(&backup), (1, self.rows.clone()), "the backup was changed");
        }
        version
    }

    /// Returns the number of kills, and of messages that were delivered again.
    pub(super) fn end(self) -> (usize, usize) {
        let Self { mut trial, store, rows, messages, was_sent } = self;
        trial.run_to_its_end();
        let (version, found) = look(&store);
        let waiting = found.iter().find(|it| it.0 == "waiting").map(|it| it.1.len());
        assert_eq!((version, waiting), (3, Some(0)));
        assert_eq!(look(&beside(&store, ".version-1")), (1, rows));
        for left in [".stepping", ".lock", ".version-1.2"] {
            assert!(!beside(&store, left).exists(), "{left} is left");
        }
        if !was_sent {
            let delivered = fs::read_to_string(trial.folder.path().join("out/delivered")).unwrap();
            for line in delivered.lines().filter(|line| !line.contains(BY_VERSION_1)) {
                let it: serde_json::Value = serde_json::from_str(line).unwrap();
                let number: u64 = it["id"].as_str().unwrap()[1..].parse().unwrap();
                assert_eq!(it["redelivered"], number < messages / 2, "{line}");
            }
        }
        let repeats = trial.check();
        (trial.kills, repeats)
    }
}

/// Fills the store, and returns the lines of the files: submitted, answered, delivered. Half of the rows are only in
/// the log.
fn fill(database: &mut Connection, messages: u64, due_of: impl Fn(u64) -> i64) -> [String; 3] {
    let [mut submitted, mut answered, mut delivered] = [const { String::new() }; 3];
    database.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    let mut transaction = database.transaction().unwrap();
    for number in 0..messages {
        if number == messages / 2 {
            transaction.commit().unwrap();
            database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            transaction = database.transaction().unwrap();
        }
        let (seq, due_ms) = (number as i64 + 1, due_of(number));
        let Item::Put(it) = put(number, due_ms) else { unreachable!() };
        let body = &it.message.body;
        let is_over = number < messages / 4;
        let is_cancelled = is_over && number.is_multiple_of(10);
        let outcome = is_cancelled.then_some(2);
        let run = |text: &str, values: &[&dyn rusqlite::ToSql]| {
            assert_eq!(transaction.prepare_cached(text).unwrap().execute(values).unwrap(), 1);
        };
        run(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)",
            params![seq, seq, due_ms, body.key(), body.id(), it.content.as_bytes(), outcome],
        );
        run("INSERT INTO ids VALUES (?, ?)", params![seq, seq]);
        if is_over {
            let lateness_us = (!is_cancelled).then_some(900);
            run(
                "INSERT INTO ledger VALUES (NULL, ?, ?, ?, ?, 1, 0)",
                params![seq, outcome.unwrap_or(1), due_ms, lateness_us],
            );
        } else {
            let payload = str::from_utf8(body.payload()).unwrap();
            run("INSERT INTO bodies VALUES (?, ?)", params![seq, payload]);
            let size = 700 + body.size() as i64;
            run("INSERT INTO waiting VALUES (?, ?, ?, ?, 0)", params![due_ms, seq, lane_of(body.key()), size]);
        }
        let asked = Asked::Put(number, due_ms).line();
        writeln!(submitted, "{asked}").unwrap();
        if number.is_multiple_of(2) {
            writeln!(answered, "{asked} Accepted").unwrap(); // the others are submitted again
        }
        if is_cancelled {
            let asked = Asked::Cancel(number).line();
            writeln!(submitted, "{asked}").unwrap();
            writeln!(answered, "{asked} Cancelled").unwrap();
        } else if number < messages / 3 {
            let key = body.key().map_or("null".to_owned(), |key| format!("\"{key}\""));
            let id = body.id();
            writeln!(delivered, r#"{{"id":"{id}","key":{key},{BY_VERSION_1},"redelivered":false}}"#).unwrap();
        }
    }
    let handed_until_ms = due_of(messages / 2 - 1);
    transaction.execute("INSERT OR REPLACE INTO meta VALUES ('handed_until_ms', ?)", [handed_until_ms]).unwrap();
    transaction.commit().unwrap();
    [submitted, answered, delivered]
}

#[test]
fn killed_at_any_step_of_a_step_up_it_loses_nothing__d5() {
    let (mut kills, mut repeats) = (0, 0);
    for last in AFTER_RENAME {
        let mut old = Old::new(400);
        for step in BEFORE_RENAME {
            old.kill_at(1, step);
        }
        old.kill_at(1, last);
        let (more, again) = old.end();
        kills += more;
        repeats += again;
    }
    println!("{kills} kills, {repeats} messages delivered again, all of them marked");
}

/// The short form takes some seconds: kills at random places, at any row, and at any moment.
#[test]
fn killed_at_any_moment_of_a_step_up_and_after_it_it_loses_nothing__d5() {
    let (trials, messages) = if setting("TICKWHEEL_SOAK").is_some() { (40, 20_000) } else { (2, 2_000) };
    let mut random = fastrand::Rng::with_seed(7);
    let (mut kills, mut repeats, mut unfinished) = (0, 0, 0);
    for _ in 0..trials {
        let mut old = Old::new(messages);
        for _ in 0..3 {
            match random.u8(0..4) {
                0 => old.kill_at(1, BEFORE_RENAME[random.usize(0..BEFORE_RENAME.len())]),
                1 => old.kill_at(random.u64(1..messages), "row"),
                _ => unfinished += u32::from(old.kill_after(Duration::from_millis(random.u64(5..400)))),
            }
            if old.was_sent {
                break;
            }
        }
        let place = PLACES[random.usize(0..PLACES.len())];
        old.was_sent = true;
        old.trial.kill(LIFE, Some(format!("{}:{place}", random.u64(1..10))));
        old.check_files();
        let (more, again) = old.end();
        kills += more;
        repeats += again;
    }
    println!(
        "{kills} kills, {unfinished} of them within a step-up at a random moment, {repeats} messages delivered again"
    );
}
