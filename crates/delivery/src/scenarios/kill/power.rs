//! The power fails, and some unsynced writes are lost (rule D5). These tests need `strace`, and run mostly in the long
//! form.
//!
//! Only `unsafe` code can give SQLite another file system. So `strace` records the calls of a process on its files.
//! From these calls, `disk.rs` makes the content of the disk at the moment when the power fails. Then a process starts
//! with these files, and the same must hold as after a kill.

use super::disk::{Call, Disk, Op};
use super::*;

const CALLS: &str = "trace=write,pwrite64,fsync,fdatasync,ftruncate,open,openat,rename,renameat,renameat2,\
                     unlink,unlinkat";

/// Bytes as `strace -xx` writes them: `\x61\x62`.
fn unescaped(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks_exact(4)
        .map(|it| u8::from_str_radix(str::from_utf8(&it[2..]).unwrap(), 16).unwrap())
        .collect()
}

/// Reads `1700000000.000001 pwrite64(5<PATH>, "DATA", 4096, 24) = 4096`: the time and the call, if its file is in the
/// folder.
fn call(line: &str, folder: &str) -> Option<(f64, Call)> {
    let (time, call) = line.split_once(' ')?;
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let is_failed = result.starts_with('-');
    if result.starts_with('?') || is_failed && !matches!(name, "fsync" | "fdatasync") {
        return None;
    }
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let quoted = |place: usize| arguments.split('"').nth(2 * place + 1);
    let path = |escaped: &str| String::from_utf8(unescaped(escaped)).ok();
    let name_in = |escaped: &str| Some(path(escaped)?.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
    let of_descriptor = || arguments.split_once('<')?.1.split_once('>').map(|it| it.0);
    let of_file = |op| Some(Call::File(name_in(of_descriptor()?)?, op));
    let last = || arguments.rsplit(", ").next().and_then(|it| it.parse().ok());
    let call = match name {
        "write" => of_file(Op::Write(None, unescaped(quoted(0)?)))?,
        "pwrite64" => of_file(Op::Write(Some(last()?), unescaped(quoted(0)?)))?,
        "fsync" | "fdatasync" if is_failed => Call::File(name_in(of_descriptor()?)?, Op::FailedSync),
        "fsync" | "fdatasync" if path(of_descriptor()?)? == folder => Call::SyncFolder(String::new()),
        "fsync" | "fdatasync" if name_in(of_descriptor()?)? == "out" => Call::SyncFolder("out".to_owned()),
        "fsync" | "fdatasync" => of_file(Op::Sync)?,
        "ftruncate" => of_file(Op::Truncate(last()?))?,
        "open" | "openat" if arguments.contains("O_CREAT") => Call::Create(name_in(quoted(0)?)?),
        "rename" | "renameat" | "renameat2" => Call::Rename(name_in(quoted(0)?)?, name_in(quoted(1)?)?),
        "unlink" | "unlinkat" => Call::Remove(name_in(quoted(0)?)?),
        _ => return None,
    };
    Some((time.parse().ok()?, call))
}

/// The content of a folder, and all calls of a process there, in the order in which they began.
struct Recording {
    disk: Disk,
    calls: Vec<Call>,
    /// The ends of the trial.
    ends: Vec<(usize, usize)>,
}

impl Recording {
    /// Records a process that ends at a place.
    fn of(trial: &Trial, place: &str) -> Self {
        let disk = Disk::of(&trial.folder.path().canonicalize().unwrap());
        Self::with(trial, disk, ("TICKWHEEL_KILL_AT", place), &[])
    }

    /// Records a process that ends because one of its syncs fails.
    fn of_failing(trial: &Trial, sync: usize) -> Self {
        let disk = Disk::of(&trial.folder.path().canonicalize().unwrap());
        let fails = format!("inject=fsync:error=EIO:when={sync}"); // of the store: a sink calls fdatasync
        Self::with(trial, disk, ("TICKWHEEL_KILL_SYNC", ""), &["-e", &fails])
    }

    fn with(trial: &Trial, disk: Disk, (name, value): (&str, &str), more: &[&str]) -> Self {
        let folder = trial.folder.path().canonicalize().unwrap();
        let traces = tempfile::tempdir().unwrap();
        let command = trial.command();
        let mut traced = Command::new("strace");
        traced.args(["-ff", "-y", "-ttt", "-xx", "-s", "100000000", "-e", CALLS]).args(more);
        traced.arg("-o").arg(traces.path().join("trace")).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            traced.env(name, value.unwrap());
        }
        traced.env("TICKWHEEL_KILL_FOLDER", &folder).env(name, value);
        let output = traced.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(!output.success(), "it was not killed");
        let mut calls = Vec::new();
        for entry in fs::read_dir(traces.path()).unwrap().map(Result::unwrap) {
            let text = fs::read_to_string(entry.path()).unwrap();
            calls.extend(text.lines().filter_map(|line| call(line, folder.to_str().unwrap())));
        }
        calls.sort_by(|one, other| one.0.total_cmp(&other.0));
        let calls = calls.into_iter().map(|(_, call)| call).collect();
        Self { disk, calls, ends: trial.ends.clone() }
    }

    /// Checks that after each sync of a file, the file would keep its name if the power failed.
    fn check_name(&self, name: &str) {
        let mut disk = self.disk.clone();
        let mut syncs = 0;
        for call in &self.calls {
            disk.note(call);
            if matches!(call, Call::File(it, Op::Sync) if it == name) {
                assert!(disk.keeps(name), "{name} was synced, and its folder was not");
                syncs += 1;
            }
        }
        assert!(syncs > 0, "{name} was never synced");
    }

    /// Whether a sync of the log failed.
    fn has_failed(&self) -> bool {
        let is_it = |call: &Call| matches!(call, Call::File(it, Op::FailedSync) if it == "store.db-wal");
        self.calls.iter().any(is_it)
    }

    /// What is on the disk after the last call.
    fn disk_after(&self) -> Disk {
        let mut disk = self.disk.clone();
        self.calls.iter().for_each(|call| disk.note(call));
        disk
    }

    /// A trial with the remaining files, if the power fails after this many calls.
    fn lose(&self, after: usize, random: &mut fastrand::Rng) -> Trial {
        let mut trial = Trial::new(3_600_000);
        trial.is_cut = true;
        trial.ends.clone_from(&self.ends);
        let mut disk = self.disk.clone();
        for call in &self.calls[..after] {
            disk.note(call);
        }
        let is_kept = |name: &str| matches!(name, "answered" | "submitted"); // these are not the engine's
        disk.lose(is_kept, trial.folder.path(), random);
        trial.note_end();
        trial
    }
}

fn has_strace() -> bool {
    let has_it = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !has_it {
        println!("left out: there is no strace");
    }
    has_it
}

#[test]
fn a_line_of_strace_is_read() {
    let read = |line: &str| call(line, "/a").map(|it| format!("{:?} {:?}", it.0, it.1));
    let line = r#"17.5 pwrite64(5<\x2f\x61\x2f\x62>, "\x01\x02", 2, 24) = 2"#;
    assert_eq!(read(line).unwrap(), r#"17.5 File("b", Write(Some(24), [1, 2]))"#);
    assert_eq!(read(r"1.0 fsync(5<\x2f\x61\x2f\x62>) = 0").unwrap(), r#"1.0 File("b", Sync)"#);
    assert_eq!(read(r"1.0 fsync(5<\x2f\x61>) = 0").unwrap(), r#"1.0 SyncFolder("")"#);
    let line = r"1.0 fsync(5<\x2f\x61\x2f\x62>) = -1 EIO (Input/output error) (INJECTED)";
    assert_eq!(read(line).unwrap(), r#"1.0 File("b", FailedSync)"#);
    assert_eq!(read(r"1.0 fsync(5<\x2f\x62\x2f\x62>) = 0"), None);
    let line = r#"1.0 rename("\x2f\x61\x2f\x62", "\x2f\x61\x2f\x63") = 0"#;
    assert_eq!(read(line).unwrap(), r#"1.0 Rename("b", "c")"#);
    let line = r#"1.0 openat(AT_FDCWD<\x2f>, "\x2f\x61\x2f\x62", O_RDWR|O_CREAT|O_EXCL, 0644) = 5<\x2f\x61\x2f\x62>"#;
    assert_eq!(read(line).unwrap(), r#"1.0 Create("b")"#);
}

/// 400 losses in the long form.
#[test]
fn when_the_power_fails_nothing_is_lost__d5() {
    if !has_strace() {
        return;
    }
    let (runs, of_each) = if setting("TICKWHEEL_SOAK").is_some() { (20, 20) } else { (1, 4) };
    let mut random = fastrand::Rng::with_seed(5);
    let (mut losses, mut repeats) = (0, 0);
    for run in 0..runs {
        let recording = Recording::of(&Trial::new(3_600_000), &format!("{}:group: answering", 10 + 4 * run));
        recording.check_name("out/delivered");
        let all = recording.calls.len();
        for loss in 0..of_each {
            let is_early = loss == 0;
            let end = if is_early { random.usize(0..200) } else { random.usize(200..=all) };
            repeats += recording.lose(end, &mut random).end().1;
            losses += 1;
        }
        println!("{losses} losses of power, {repeats} messages delivered again");
    }
}

/// The system says that a sync of the log failed, and takes the pages as written. The next process reads them from memory.
/// Then the power fails: they were never on the disk, and what was answered since must not be behind them.
#[test]
fn when_a_sync_failed_and_then_the_power_fails_nothing_is_lost__d6() {
    if !has_strace() {
        return;
    }
    let (first, runs, of_each) = if setting("TICKWHEEL_SOAK").is_some() { (18, 40, 5) } else { (24, 1, 3) };
    let mut random = fastrand::Rng::with_seed(6);
    let mut failed = 0;
    for sync in first..first + 40 {
        if failed == runs {
            break;
        }
        let mut trial = Trial::new(3_600_000);
        let before = Recording::of_failing(&trial, sync);
        trial.note_end();
        if !before.has_failed() {
            continue; // it was a sync of the destination: which one it is, the speed of the machine decides
        }
        failed += 1;
        let recording = Recording::with(&trial, before.disk_after(), ("TICKWHEEL_KILL_AT", "8:group: answering"), &[]);
        for _ in 0..of_each {
            recording.lose(random.usize(recording.calls.len() / 2..=recording.calls.len()), &mut random).end();
        }
    }
    assert!(failed > 0, "no sync of the log failed");
}
