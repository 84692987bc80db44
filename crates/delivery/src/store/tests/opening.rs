//! Opening existing files: a store, the database of another program, a broken store, one of another format (D2, D5).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::making::{Shelf, commit};
use crate::base::error::DeliveryError;
use crate::store::look::snapshot::Snapshot;
use crate::store::{Checkpoints, Limits, Options, Store};

fn open(path: &Path) -> Result<Store, DeliveryError> {
    Store::open(path, Options::new(1, Box::new(|| 0), Box::new(|| 0)))
}

fn error_of(path: &Path) -> String {
    let before = std::fs::read(path).ok();
    let error = open(path).expect_err("it can't be opened");
    assert_eq!(std::fs::read(path).ok(), before, "it is left alone");
    error.to_string()
}

fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "{text}");
}

#[test]
fn a_store_of_another_format_is_refused_and_left_alone__d20() {
    let shelf = Shelf::new(Limits::default());
    drop(shelf.open());
    for format in [-1, 0, 1, 2, 3, 4, 5, 99] {
        Connection::open(shelf.path()).unwrap().pragma_update(None, "user_version", format).unwrap();
        let text = format!(
            "{} is a store of format {format}, and this tickwheel reads and writes format 13 alone: deliver its messages \
             with the tickwheel that made it, or name another file",
            shelf.path().display()
        );
        assert_eq!(error_of(&shelf.path()), text);
        assert_eq!(Snapshot::open(&shelf.path()).map(drop).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let shelf = Shelf::new(Limits::default());
    Connection::open(shelf.path()).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert_says(&error_of(&shelf.path()), "another program: name another file");
}

#[test]
fn what_is_not_a_database_is_refused_and_left_alone() {
    let shelf = Shelf::new(Limits::default());
    std::fs::write(shelf.path(), "this is a text, not a database\n".repeat(100)).unwrap();
    assert_says(&error_of(&shelf.path()), "not a store, or damaged: name another file");
    assert_says(&error_of(&shelf.path()), "can't be used");
}

#[test]
fn a_store_that_was_cut_off_is_refused_with_advice() {
    for share in [2, 10] {
        let shelf = Shelf::new(Limits::default());
        drop(shelf.open());
        let bytes = std::fs::read(shelf.path()).unwrap();
        std::fs::write(shelf.path(), &bytes[..bytes.len() / share]).unwrap();
        let error = open(&shelf.path()).unwrap_err().to_string();
        assert_says(&error, "not a store, or damaged: name another file, or restore it");
    }
}

#[test]
fn an_empty_file_becomes_a_store_and_keeps_its_name() {
    let shelf = Shelf::new(Limits::default());
    std::fs::write(shelf.path(), "").unwrap();
    let id = open(&shelf.path()).unwrap().id().to_owned();
    assert_eq!(id.len(), 32);
    assert_eq!(shelf.open().id(), id);
    let other = Shelf::new(Limits::default());
    assert_ne!(other.open().id(), id);
}

#[test]
fn every_commit_is_on_disk_and_pages_can_be_given_back() {
    let shelf = Shelf::new(Limits::default());
    let store = open(&shelf.path()).unwrap();
    let asked = |name: &str| store.db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((asked("synchronous"), asked("auto_vacuum"), asked("wal_autocheckpoint")), (2, 2, 0));
    assert_eq!(asked("journal_size_limit"), 64 << 20);
    let mode: String = store.db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn a_missing_folder_is_told() {
    let shelf = Shelf::new(Limits::default());
    let path = shelf.path().join("nowhere").join("store.db");
    assert_says(&open(&path).unwrap_err().to_string(), "make it and its folder writable");
}

#[test]
fn a_store_may_have_any_name() {
    let shelf = Shelf::new(Limits::default());
    for name in ["ä ö.db".as_bytes(), b"a?b=c#d.db", b"file:x.db", b"%41.db", b"a\nb", b"\xff.db", b":memory:"] {
        let path = shelf.path().with_file_name(OsStr::from_bytes(name));
        let mut store = open(&path).unwrap();
        commit(&mut store, |store| store.remember_cancel(None, "a", 1, None).unwrap());
        drop(store);
        assert!(path.exists(), "{name:?}");
        assert_eq!(open(&path).unwrap().remembered_cancels(), 1);
    }
}

#[test]
fn the_guard_is_there_until_the_file_is_closed() {
    struct Watch(PathBuf);
    impl Drop for Watch {
        fn drop(&mut self) {
            // SQLite removes the log when it closes the file for the last time.
            assert!(!self.0.exists(), "it is closed");
        }
    }
    for with_checkpoints in [false, true] {
        let shelf = Shelf::new(Limits::default());
        let mut options = Options::new(1, Box::new(|| 0), Box::new(|| 0));
        let log = shelf.path().with_file_name("store.db-wal");
        let watch = Arc::new(Watch(log.clone()));
        let is_there = Arc::downgrade(&watch);
        options.guard = Some(watch);
        let store = Store::open(&shelf.path(), options).unwrap();
        let start = || Checkpoints::start(&store, Box::new(|error| panic!("{error}"))).unwrap();
        let checkpoints = with_checkpoints.then(start);
        if let Some(checkpoints) = &checkpoints {
            checkpoints.after_commit(&store);
        }
        assert!(log.exists());
        drop(store);
        assert_eq!(is_there.strong_count() > 0, with_checkpoints);
        drop(checkpoints);
        assert_eq!(is_there.strong_count(), 0);
    }
}
