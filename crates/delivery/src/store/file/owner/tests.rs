//! Only one process at a time has a store, by whatever path it is opened (D9).

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::base::open_stores::is_open_here;
use crate::scenarios::testing::test_named;

const STORE: &str = "TICKWHEEL_TEST_OWNER_STORE";

/// Not a test: the program of the second process in other tests. It has the store until its standard input ends.
#[test]
fn second_process() {
    let Some(path) = env::var_os(STORE) else { return };
    let owner = Ownership::take(Path::new(&path), &mut |text| eprintln!("{text}"), &mut || true).unwrap();
    eprintln!("mine");
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(owner);
}

struct Second {
    process: Child,
    says: Lines<BufReader<ChildStderr>>,
}

impl Second {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", &test_named(module_path!(), "second_process"), "--nocapture"])
            .env(STORE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, says }
    }

    fn says(&mut self) -> String {
        self.says.next().unwrap().unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a store.db");
    (folder, path)
}

fn take(path: &Path) -> Ownership {
    Ownership::take(path, &mut |text| panic!("{text}"), &mut || false).unwrap()
}

fn refused(path: &Path) -> String {
    let mut told = Vec::new();
    let error = Ownership::take(path, &mut |text| told.push(text.to_owned()), &mut || false).unwrap_err();
    assert!(matches!(error, DeliveryError::Closed), "{error}");
    assert_eq!(told.len(), 1);
    told.remove(0)
}

fn error_at(path: &Path) -> String {
    Ownership::take(path, &mut |_| {}, &mut || false).unwrap_err().to_string()
}

#[test]
fn the_second_process_waits_names_the_owner_and_takes_over_when_it_has_ended__d9() {
    let (_folder, path) = folder();
    let mut first = Second::start(&path);
    assert_eq!(first.says(), "mine");
    let text = format!(
        "another process works with {} (process {}): waiting for it to end",
        path.display(),
        first.process.id()
    );
    let mut second = Second::start(&path);
    assert_eq!(second.says(), text);
    let pid = Pid::from_child(&first.process);
    kill_process(pid, Signal::STOP).unwrap(); // still the owner, because it may continue
    assert_eq!(refused(&path), text);
    first.kill();
    assert_eq!(second.says(), "mine");
    assert!(refused(&path).contains(&format!("(process {})", second.process.id())));
}

/// The list of the system, read in two parts while another lock came. The last lock of the first part is also the
/// first lock of the second part.
#[test]
fn a_lock_that_stands_twice_in_the_list_has_one_owner__d9() {
    let (_folder, path) = folder();
    fs::write(&path, b"").unwrap();
    let file = FileId::at(&path).unwrap();
    let (major, minor) = file.device_numbers();
    let line =
        |pid: u32, inode: u64| format!("7: FLOCK  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{inode} 0 EOF\n");
    let other = line(8, file.inode + 1);
    assert_eq!(owners_in(&format!("{other}{0}{0}{other}", line(4711, file.inode)), "FLOCK", file), [4711]);
    assert_eq!(owners_in(&format!("{}{}", line(5, file.inode), line(4, file.inode)), "FLOCK", file), [4, 5]);
    assert!(owners_in(&other, "FLOCK", file).is_empty());
}

#[test]
fn a_store_that_was_renamed_or_removed_does_not_let_a_second_owner_in_at_its_old_file__d9() {
    let (folder, path) = folder();
    let mut first = Second::start(&path);
    assert_eq!(first.says(), "mine");
    let _ = fs::remove_file(path.with_file_name("a store.db.lock")); // no file beside the store is its lock
    assert!(refused(&path).starts_with("another process works with"));
    let elsewhere = folder.path().join("elsewhere.db");
    fs::rename(&path, &elsewhere).unwrap();
    assert!(refused(&elsewhere).starts_with("another process works with"));
    drop(take(&path)); // another file, and so another store
}

#[test]
fn a_file_that_is_replaced_or_removed_between_open_and_lock_is_not_the_store__d9() {
    let (folder, path) = folder();
    let new = folder.path().join("new.db");
    for _ in 0..2 {
        fs::write(&new, b"y").unwrap();
        let replaced = attempt(&path, || fs::rename(&new, &path).unwrap()).unwrap();
        assert!(matches!(replaced, Attempt::Moved));
    }
    assert!(matches!(attempt(&path, || fs::remove_file(&path).unwrap()).unwrap(), Attempt::Moved));
    assert!(matches!(attempt(&path, || {}).unwrap(), Attempt::Taken(_)));
}

#[test]
fn a_store_that_takes_the_place_of_another_has_an_owner_of_its_own__d9() {
    let (folder, path) = folder();
    let owner = take(&path);
    fs::write(&path, b"x").unwrap();
    let new = folder.path().join("new.db");
    fs::write(&new, b"y").unwrap();
    fs::rename(&new, &path).unwrap();
    let second = take(&path); // the lock on the file that is at the path now
    assert!(is_open_here(&path));
    drop(owner);
    assert!(refused(&path).starts_with("this process works with"));
    drop(second);
}

#[test]
fn in_one_process_too_the_second_waits__d9() {
    let (_folder, path) = folder();
    let first = take(&path);
    let (waits, is_waiting) = channel();
    let path = &path;
    thread::scope(|scope| {
        let second = scope.spawn(move || {
            let mut told = |text: &str| waits.send(text.to_owned()).unwrap();
            drop(Ownership::take(path, &mut told, &mut || true).unwrap());
        });
        let text = is_waiting.recv().unwrap();
        assert_eq!(text, format!("this process works with {} already: waiting for it to end", path.display()));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap();
    });
    assert!(!is_open_here(path));
}

#[test]
fn an_attempt_that_fails_does_not_drop_the_locks_of_sqlite_in_this_process__d9() {
    let (_folder, path) = folder();
    let owner = take(&path);
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE t (a); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
    assert!(has_posix_lock(&path));
    refused(&path);
    assert!(has_posix_lock(&path));
    drop(File::open(&path).unwrap()); // the reason why no other code in the process may open it
    assert!(!has_posix_lock(&path));
    drop(database);
    drop(owner);
}

/// Whether this process has a POSIX lock on the file, by the kernel's list.
fn has_posix_lock(path: &Path) -> bool {
    let inode = format!(":{}", FileId::at(path).unwrap().inode);
    let pid = process::id().to_string();
    fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields[1] == "POSIX" && fields[4] == pid && fields[5].ends_with(&inode)
    })
}

#[test]
fn another_name_for_the_same_store_is_the_same_store__d9() {
    let (folder, path) = folder();
    fs::create_dir(folder.path().join("real")).unwrap();
    for (link, to) in [("folder", "real"), ("link.db", "real/store.db"), ("link of a link.db", "link.db")] {
        std::os::unix::fs::symlink(to, folder.path().join(link)).unwrap();
    }
    for made_by in ["real/store.db", "link of a link.db"] {
        let owner = take(&folder.path().join(made_by)); // also if there is no file yet
        assert_eq!(owner.path(), path.with_file_name("real").join("store.db"));
        for other in ["folder/store.db", "real/../real/store.db", "link.db", "link of a link.db"] {
            assert!(refused(&folder.path().join(other)).starts_with("this process works with"), "{other}");
            let mut second = Second::start(&folder.path().join(other));
            assert!(second.says().starts_with("another process works with"), "{other}");
        }
    }
}

#[test]
fn a_place_where_no_store_can_be_is_named__d9() {
    let (folder, _) = folder();
    let at = |name: &str| error_at(&folder.path().join(name));
    assert!(at("nowhere/store.db").starts_with("there is no folder "));
    assert!(at("").ends_with("is a folder: name a file for the store"));
    assert!(error_at(Path::new("/")).ends_with("is a folder: name a file for the store"));
    assert!(error_at(Path::new("..")).ends_with("is a folder: name a file for the store"));
    std::os::unix::fs::symlink("ring", folder.path().join("ring")).unwrap();
    assert!(at("ring").contains("ring of symbolic links"));
    std::os::unix::fs::symlink("gone/store.db", folder.path().join("nowhere")).unwrap();
    assert!(at("nowhere").starts_with("there is no folder "));
    assert!(at(&"x".repeat(300)).ends_with("make it and its folder writable"));
}

#[test]
fn a_start_that_fails_leaves_no_empty_file__d13() {
    let (_folder, path) = folder();
    drop(take(&path));
    assert!(!path.exists());
    let owner = take(&path);
    fs::write(&path, b"x").unwrap(); // this process made it, and by now it is a store
    drop(owner);
    assert!(path.exists());
    fs::write(&path, b"").unwrap(); // another program made it
    drop(take(&path));
    assert!(path.exists());
}

/// A fork shares the open file. Here, a duplicate of the descriptor stands for the child's copy.
#[test]
fn a_copy_of_a_forked_child_does_not_keep_the_store__d9() {
    let (_folder, path) = folder();
    let owner = take(&path);
    fs::write(&path, b"x").unwrap(); // else the file is removed at the end
    owner.forget_in_child(); // does nothing in the parent
    let copy = owner.store.copy().unwrap();
    assert!(refused(&path).starts_with("this process"));
    drop(owner);
    drop(take(&path)); // though the copy is open
    drop(copy);
}

#[test]
fn a_file_that_was_made_and_never_used_is_removed_and_one_that_was_there_is_not__d13() {
    let (_folder, path) = folder();
    for (is_used, is_left) in [(false, false), (true, true), (false, true)] {
        let mut owner = take(&path);
        owner.remove_unless(Arc::new(AtomicBool::new(is_used)));
        fs::write(&path, b"a store").unwrap();
        drop(owner);
        assert_eq!(path.exists(), is_left);
    }
}

#[test]
fn a_store_with_two_names_is_refused_and_a_new_one_is_for_its_owner_alone__d9_d12() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = folder();
    let owner = take(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&path, b"x").unwrap(); // else the file is removed at the end
    drop(owner);
    let other = path.with_file_name("other.db");
    fs::hard_link(&path, &other).unwrap();
    for name in [&path, &other] {
        assert!(error_at(name).contains(" has 2 names (hard links), and its log "));
    }
    fs::remove_file(&other).unwrap();
    drop(take(&path));
}

/// The system gives the inode of a removed file to the next file. An empty store is removed when it is given up.
#[test]
fn a_new_store_is_never_taken_for_one_that_was_just_removed__d9() {
    let folder = tempdir().unwrap();
    thread::scope(|scope| {
        for number in 0..16 {
            let path = folder.path().join(format!("{number}.db"));
            scope.spawn(move || {
                for _ in 0..1_000 {
                    drop(Ownership::try_take(&path).unwrap());
                }
            });
        }
    });
}
