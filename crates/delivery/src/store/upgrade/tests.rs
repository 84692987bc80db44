//! A store of version 1 is stepped up whole or not at all, wherever the process is killed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::{Command, abort};

use rusqlite::types::Value;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::message::incoming::Digest;
use crate::scenarios::testing::test_named;
use crate::store::maintenance::check;

const OLD: &str = include_str!("version_1.sql");
const DAY_MS: i64 = 86_400_000;
const NOW_MS: i64 = 10 * DAY_MS;
const STORE: &str = "TICKWHEEL_TEST_UPGRADE_STORE";
const KILL_AT: &str = "TICKWHEEL_TEST_UPGRADE_KILL_AT";
const SMALL: Limits = Limits { block: 10, tries: 2, ..USUAL };

struct Shelf {
    _folder: TempDir,
    path: PathBuf,
}

impl Shelf {
    /// A shelf with a store of version 1 as a crash leaves it: a part is in the log.
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("store.db");
        let made = folder.path().join("made.db");
        let database = Connection::open(&made).unwrap();
        database.execute_batch(OLD).unwrap();
        database
            .execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE meta SET value = 'there' WHERE name = 'position'")
            .unwrap();
        fs::copy(&made, &path).unwrap();
        fs::copy(beside(&made, "-wal"), beside(&path, "-wal")).unwrap();
        drop(database);
        fs::remove_file(made).unwrap();
        fs::write(beside(&path, ".lock"), "4711\n").unwrap();
        Self { _folder: folder, path }
    }

    /// A shelf with a store of version 2, made of the same messages.
    fn of_version_2() -> Self {
        let shelf = Self::new();
        fs::remove_file(shelf.step_up().unwrap()).unwrap();
        let database = Connection::open(&shelf.path).unwrap();
        database
            .execute_batch(
                "DROP INDEX attempts_by_next;
                 ALTER TABLE attempts DROP COLUMN strikes; ALTER TABLE attempts DROP COLUMN waited_ms;
                 ALTER TABLE attempts DROP COLUMN at_ms; ALTER TABLE attempts DROP COLUMN is_unanswered;
                 INSERT OR REPLACE INTO attempts (seq, attempts, next_ms, error)
                 SELECT seq, 3, 9, 'status 503' FROM waiting LIMIT 1;
                 PRAGMA user_version = 2",
            )
            .unwrap();
        shelf
    }

    fn own(&self) -> Ownership {
        Ownership::take(&self.path, &mut |text| panic!("{text}"), &mut || false).unwrap()
    }

    fn step_up(&self) -> Option<PathBuf> {
        step_up_by(&mut self.own(), NOW_MS, &SMALL, &mut |_| true).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder(&self.path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

type Rows = BTreeMap<String, Vec<Vec<Value>>>;

fn read(path: &Path) -> (i64, Rows) {
    let database = Connection::open(path).unwrap();
    let version = database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let mut tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let rows = names.into_iter().map(|name| {
        let rows = select(&database, &format!("SELECT * FROM {name} ORDER BY 1"));
        (name, rows)
    });
    (version, rows.collect())
}

fn select(database: &Connection, text: &str) -> Vec<Vec<Value>> {
    let mut select = database.prepare(text).unwrap();
    let columns = select.column_count();
    let rows = select.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn all_that_counts_is_in_the_new_store() {
    let shelf = Shelf::new();
    let backup = shelf.step_up().unwrap();
    assert_eq!(shelf.names(), ["store.db", "store.db.version-1"]);
    assert_eq!(backup, beside(&shelf.path, ".version-1"));
    let ((version, new), (old_version, old)) = (read(&shelf.path), read(&backup));
    assert_eq!((version, old_version), (3, 1));
    for table in ["ledger", "inputs", "dead_letters"] {
        assert_eq!(new[table], old[table], "{table}");
        assert!(!new[table].is_empty());
    }
    let database = Connection::open(&shelf.path).unwrap();
    let texts = |text: &str| -> Vec<String> {
        select(&database, text)
            .into_iter()
            .map(|row| row.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(
        texts("SELECT due_ms, seq, size, redelivered FROM waiting ORDER BY due_ms"),
        // The messages 2 and 4 were due when the last run crashed, and 8 was tried before.
        [
            "Integer(2000) Integer(2) Integer(203) Integer(1)",
            "Integer(4000) Integer(4) Integer(208) Integer(1)",
            "Integer(6000) Integer(6) Integer(503) Integer(0)",
            "Integer(9000000000000) Integer(8) Integer(205) Integer(1)"
        ]
    );
    assert_eq!(
        texts("SELECT seq, typeof(payload) FROM bodies"),
        [
            "Integer(2) Text(\"text\")",
            "Integer(4) Text(\"blob\")",
            "Integer(6) Text(\"text\")",
            "Integer(8) Text(\"text\")"
        ]
    );
    assert_eq!(
        texts("SELECT name, value FROM meta ORDER BY 1"),
        [
            "Text(\"collected_n\") Integer(4)",
            "Text(\"last_seq\") Integer(8)",
            "Text(\"letters_written\") Integer(1)",
            "Text(\"near_floor_n\") Integer(4)",
            "Text(\"near_floor_seq\") Integer(9)",
            "Text(\"position\") Text(\"there\")",
            "Text(\"redelivered_until_ms\") Integer(9000000000000)",
            "Text(\"store_id\") Text(\"00112233445566778899aabbccddeeff\")"
        ]
    );
    // The last outcome has an earlier time than the one before, so it counts for the same day.
    assert_eq!(
        texts("SELECT from_ms / 86400000, last_n FROM days"),
        ["Integer(0) Integer(0)", "Integer(1) Integer(1)", "Integer(3) Integer(2)"]
    );
    assert_eq!(texts("PRAGMA auto_vacuum"), ["Integer(2)"]);
    assert_eq!(texts("PRAGMA integrity_check"), ["Text(\"ok\")"]);
}

#[test]
fn messages_and_cancels_are_found_by_the_digest_of_this_version() {
    let shelf = Shelf::new();
    let backup = shelf.step_up().unwrap();
    let ((_, new), (_, old)) = (read(&shelf.path), read(&backup));
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    for (table, name, key, id) in [("messages", 1, 3, 4), ("cancels", 0, 1, 2)] {
        assert_eq!(new[table].len(), old[table].len());
        for row in &new[table] {
            let digest = Digest::of(text(&row[key]).as_deref(), &text(&row[id]).unwrap());
            assert_eq!(row[name], Value::Integer(digest.number()));
            let mut same = old[table].iter().filter(|old| old[key..=id] == row[key..=id]);
            let mut same = same.next().unwrap().clone();
            assert_ne!(same[name], row[name], "the names of version 1 had other numbers");
            same[name] = row[name].clone();
            if table == "messages" {
                same.push(Value::Null); // no name came again
            }
            assert_eq!(&same, row);
        }
    }
}

/// Not a test: a process that aborts after a given number of steps.
#[test]
fn killed_process() {
    let (Some(path), Ok(kill_at)) = (env::var_os(STORE), env::var(KILL_AT)) else { return };
    let mut left: u32 = kill_at.parse().unwrap();
    let mut owner = Ownership::take(Path::new(&path), &mut |_| {}, &mut || false).unwrap();
    let _ = step_up_by(&mut owner, NOW_MS, &SMALL, &mut |_| {
        if left == 0 {
            abort();
        }
        left -= 1;
        true
    });
}

#[test]
fn killed_after_any_step_and_started_again_it_ends_with_the_same_result() {
    killed_of(1, 7, Shelf::new);
}

#[test]
fn killed_after_any_step_from_version_2_it_ends_with_the_same_result() {
    killed_of(2, 4, Shelf::of_version_2);
}

fn killed_of(version: i64, steps: u32, made: fn() -> Shelf) {
    let whole = made();
    whole.step_up();
    let (result, names) = (read(&whole.path), whole.names());
    for kill_at in 0_u32.. {
        let shelf = made();
        let killed = Command::new(env::current_exe().unwrap())
            .args(["--exact", &test_named(module_path!(), "killed_process")])
            .env(STORE, &shelf.path)
            .env(KILL_AT, kill_at.to_string())
            .output()
            .unwrap();
        assert!(shelf.path.exists());
        let old_or_new = read(&shelf.path).0;
        assert_eq!(shelf.step_up().is_some(), old_or_new == version, "{kill_at}");
        assert_eq!(read(&shelf.path), result, "{kill_at}");
        assert_eq!(shelf.names(), names, "{kill_at}");
        assert_eq!(read(&beside(&shelf.path, format!(".version-{version}").as_str())).0, version);
        if killed.status.success() {
            assert_eq!(kill_at, steps);
            break;
        }
    }
}

#[test]
fn from_version_2_all_is_kept_and_each_attempt_counts__d6() {
    let shelf = Shelf::of_version_2();
    let (_, mut old) = read(&shelf.path);
    let backup = shelf.step_up().unwrap();
    assert_eq!(backup, beside(&shelf.path, ".version-2"));
    let (version, new) = read(&shelf.path);
    assert_eq!((version, read(&backup)), (3, (2, old.clone())));
    for row in old.get_mut("attempts").unwrap() {
        row.extend([row[1].clone(), Value::Integer(0), Value::Integer(0), Value::Integer(0)]);
    }
    assert!(!old["attempts"].is_empty());
    assert_eq!(new, old);
    check::tests::assert_whole(&shelf.path, Digest::number);
}

#[test]
fn stopped_after_any_step_it_ends_with_the_same_result_the_next_time() {
    let whole = Shelf::new();
    whole.step_up();
    for stop_at in 0..7 {
        let shelf = Shelf::new();
        let mut left = stop_at;
        let stopped = step_up_by(&mut shelf.own(), NOW_MS, &SMALL, &mut |_| {
            left -= 1;
            left >= 0
        });
        assert!(matches!(stopped, Err(DeliveryError::Closed)));
        assert!(!beside(&shelf.path, ".stepping").exists());
        shelf.step_up();
        assert_eq!(read(&shelf.path), read(&whole.path));
        assert_eq!(shelf.names(), whole.names());
    }
}

#[test]
fn each_step_is_told_once_in_its_order() {
    let shelf = Shelf::new();
    let mut steps = Vec::new();
    step_up_by(&mut shelf.own(), NOW_MS, &SMALL, &mut |step| {
        steps.push(step);
        true
    })
    .unwrap();
    let copied = |rows| Step::Copied { rows, of: 25 };
    let copied = [copied(10), copied(20), copied(25)];
    let expected = [&[Step::LogEnded][..], &copied, &[Step::Synced, Step::Linked, Step::Renamed]].concat();
    assert_eq!(steps, expected);
}

#[test]
fn the_new_store_is_owned_without_a_gap__d9() {
    let shelf = Shelf::new();
    let mut owner = shelf.own();
    step_up_by(&mut owner, NOW_MS, &SMALL, &mut |_| {
        let is_refused = Ownership::take(&shelf.path, &mut |_| {}, &mut || false).is_err();
        let status = Command::new("flock").arg("-n").arg(&shelf.path).arg("true").status();
        is_refused && status.is_ok_and(|status| !status.success())
    })
    .unwrap();
    drop(owner);
    drop(shelf.own());
}

#[test]
fn a_disk_without_room_leaves_the_old_store_as_it_was__d2() {
    let shelf = Shelf::new();
    let before = read(&shelf.path);
    let tight = Limits { free: Some(1 << 20), ..USUAL };
    let error = step_up_by(&mut shelf.own(), NOW_MS, &tight, &mut |_| true).unwrap_err().to_string();
    let needs =
        format!("needs 2 MiB in {}, where 1 MiB are free; make room on the disk", folder(&shelf.path).display());
    assert!(error.contains(&needs), "{error}");
    let full = Limits { pages: Some(15), ..USUAL };
    let error = step_up_by(&mut shelf.own(), NOW_MS, &full, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("full; make room on the disk and run again"), "{error}");
    assert_eq!(read(&shelf.path), before);
    assert_eq!(shelf.names(), ["store.db", "store.db.lock"]);
}

#[test]
fn a_backup_of_another_store_is_not_overwritten() {
    let shelf = Shelf::new();
    fs::write(beside(&shelf.path, ".version-1"), "mine").unwrap();
    assert_eq!(shelf.step_up(), Some(beside(&shelf.path, ".version-1.2")));
    assert_eq!(fs::read_to_string(beside(&shelf.path, ".version-1")).unwrap(), "mine");
}

#[test]
fn a_store_that_is_read_meanwhile_is_not_stepped_up() {
    let shelf = Shelf::new();
    let mut owner = shelf.own();
    let reader = Connection::open(&shelf.path).unwrap(); // in this process: SQLite's locks work between connections too
    let mut select = reader.prepare("SELECT * FROM messages").unwrap();
    let mut rows = select.query([]).unwrap();
    rows.next().unwrap();
    let error = step_up_by(&mut owner, NOW_MS, &SMALL, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("another process reads it") && error.ends_with("the store is as it was"), "{error}");
    drop(rows);
    drop(select);
    drop(reader);
    assert!(step_up_by(&mut owner, NOW_MS, &SMALL, &mut |_| true).unwrap().is_some());
}

#[test]
fn what_is_no_store_of_version_1_is_left_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("store.db");
    let up = |path: &Path| {
        let mut owner = Ownership::take(path, &mut |_| {}, &mut || false).unwrap();
        step_up_by(&mut owner, NOW_MS, &SMALL, &mut |_| true)
    };
    assert_eq!(up(&path).unwrap(), None); // a new store
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(up(&path).unwrap(), None);
    fs::write(&path, "x".repeat(200)).unwrap();
    assert!(up(&path).unwrap_err().to_string().contains("it is not a store, or damaged"));
    let shelf = Shelf::new();
    shelf.step_up();
    let before = fs::read(&shelf.path).unwrap();
    assert_eq!(shelf.step_up(), None); // it is of this version
    assert_eq!(fs::read(&shelf.path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
