//! The power fails: of what was written and not synced some is lost (rule D5). Only in the long form, and with `strace`.
//!
//! SQLite can be given a file system of one's own only by `unsafe` code. So `strace` records each write and sync of a process, and
//! what is on the disk when the power fails at a moment is made from that. For each block of 4 KiB of the store's files
//! it is what some prefix of the writes since the last sync made of it, at random; of the sink's file, a prefix. Then a
//! process starts with these files, and the same must hold as after a kill.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use super::*;

const BLOCK: usize = 4_096;

#[derive(Clone, Debug)]
enum Op {
    /// At an offset, or at the end.
    Write(Option<usize>, Vec<u8>),
    Truncate(usize),
    Sync,
    Remove,
}

/// One file: what is on the disk for certain, and what was done since.
#[derive(Clone, Debug, Default)]
struct OnDisk {
    synced: Vec<u8>,
    since: Vec<Op>,
}

/// Bytes as `strace -xx` writes them: `\x61\x62`.
fn unescaped(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks_exact(4)
        .map(|it| u8::from_str_radix(str::from_utf8(&it[2..]).unwrap(), 16).unwrap())
        .collect()
}

fn name_in(escaped: &str) -> String {
    let path = String::from_utf8(unescaped(escaped)).unwrap();
    path.rsplit('/').next().unwrap().to_owned()
}

/// `1700000000.000001 pwrite64(5<PATH>, "DATA", 4096, 24) = 4096`
fn event(line: &str) -> Option<(f64, String, Op)> {
    let (time, call) = line.split_once(' ')?;
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    if result.starts_with('-') || result.starts_with('?') {
        return None;
    }
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let quoted = |text: &str| text.split('"').nth(1).map(str::to_owned);
    let file = match name {
        "unlink" => name_in(&quoted(arguments)?),
        _ => name_in(arguments.split_once('<')?.1.split_once('>')?.0),
    };
    let last = || arguments.rsplit(", ").next().and_then(|it| it.parse().ok());
    let op = match name {
        "write" => Op::Write(None, unescaped(&quoted(arguments)?)),
        "pwrite64" => Op::Write(Some(last()?), unescaped(&quoted(arguments)?)),
        "fsync" | "fdatasync" => Op::Sync,
        "ftruncate" => Op::Truncate(last()?),
        "unlink" => Op::Remove,
        _ => return None,
    };
    Some((time.parse().ok()?, file, op))
}

/// All that a process did, in the order in which it began it.
fn recorded(folder: &Path) -> Vec<(String, Op)> {
    let mut events = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().starts_with("trace.") {
            events.extend(fs::read_to_string(entry.path()).unwrap().lines().filter_map(event));
        }
    }
    events.sort_by(|one, other| one.0.total_cmp(&other.0));
    events.into_iter().map(|(_, file, op)| (file, op)).collect()
}

fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(at, data) => {
            let at = at.unwrap_or(bytes.len());
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        Op::Truncate(len) => bytes.resize(*len, 0),
        Op::Sync | Op::Remove => {}
    }
}

impl OnDisk {
    fn note(&mut self, op: &Op) {
        match op {
            Op::Remove => *self = Self::default(),
            Op::Sync => self.since.drain(..).for_each(|op| apply(&mut self.synced, &op)),
            op => self.since.push(op.clone()),
        }
    }

    fn all(mut self) -> Vec<u8> {
        self.note(&Op::Sync);
        self.synced
    }

    /// The sink's file.
    fn prefix(mut self, random: &mut fastrand::Rng) -> Vec<u8> {
        let least = self.synced.len();
        self.note(&Op::Sync);
        self.synced.truncate(random.usize(least..=self.synced.len()));
        self.synced
    }

    /// Each block by itself has seen some of what was done to it.
    fn blocks(mut self, random: &mut fastrand::Rng) -> Vec<u8> {
        let pieces: Vec<Op> = self.since.iter().flat_map(in_blocks).collect();
        let mut written: HashMap<usize, usize> = HashMap::new();
        for piece in &pieces {
            *written.entry(block_of(piece)).or_default() += 1;
        }
        let loses = random.u8(1..4);
        for left in written.values_mut() {
            *left = if random.u8(0..4) < loses { random.usize(0..=*left) } else { *left };
        }
        for piece in &pieces {
            let left = written.get_mut(&block_of(piece)).unwrap();
            if *left > 0 {
                *left -= 1;
                apply(&mut self.synced, piece);
            }
        }
        self.synced
    }
}

/// The block that a piece is in; cutting a file off is by itself.
fn block_of(piece: &Op) -> usize {
    if let Op::Write(Some(at), _) = piece { at / BLOCK } else { usize::MAX }
}

fn in_blocks(op: &Op) -> Vec<Op> {
    let Op::Write(Some(at), data) = op else { return vec![op.clone()] };
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < data.len() {
        let to = data.len().min((at + from) / BLOCK * BLOCK + BLOCK - at);
        pieces.push(Op::Write(Some(at + from), data[from..to].to_vec()));
        from = to;
    }
    pieces
}

/// A process that is recorded and ends in the middle of a group.
fn record(groups: u64) -> Vec<(String, Op)> {
    let trial = Trial::new(3_600_000);
    let command = trial.command();
    let folder = trial.folder.path();
    let mut traced = Command::new("strace");
    traced.args([
        "-ff",
        "-y",
        "-ttt",
        "-xx",
        "-s",
        "100000000",
        "-e",
        "trace=write,pwrite64,fsync,fdatasync,ftruncate,unlink",
    ]);
    traced.arg("-o").arg(folder.join("trace")).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        traced.env(name, value.unwrap());
    }
    traced.env("TICKWHEEL_KILL_AT", format!("{groups}:group: answering"));
    let output = traced.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(!output.success(), "it was not killed");
    recorded(folder)
}

/// What is on the disk when the power fails after so many events.
fn lose(events: &[(String, Op)], random: &mut fastrand::Rng) -> Trial {
    let mut trial = Trial::new(3_600_000);
    trial.is_cut = true;
    let mut files: BTreeMap<&str, OnDisk> = BTreeMap::new();
    for (file, op) in events {
        files.entry(file).or_default().note(op);
    }
    for (name, file) in files {
        let bytes = match name {
            "answered" | "submitted" => file.all(), // these are not the engine's
            "delivered" => file.prefix(random),
            "store.db" | "store.db-wal" | "store.db-journal" => file.blocks(random),
            _ => continue,
        };
        if !bytes.is_empty() || name == "store.db" {
            fs::write(trial.folder.path().join(name), bytes).unwrap();
        }
    }
    trial.note_end();
    trial
}

#[test]
fn a_line_of_strace_is_read() {
    let line = r#"17.5 pwrite64(5<\x2f\x61\x2f\x62>, "\x01\x02", 2, 24) = 2"#;
    let (time, file, op) = event(line).unwrap();
    assert!((time - 17.5).abs() < 1e-9 && file == "b");
    assert!(matches!(op, Op::Write(Some(24), data) if data == [1, 2]));
    assert!(matches!(event(r"17.5 fsync(5<\x2f\x61>) = 0").unwrap().2, Op::Sync));
    assert!(event(r"17.5 fsync(5<\x2f\x61>) = -1 EIO (Input/output error)").is_none());
}

#[test]
fn a_block_has_seen_some_of_what_was_not_synced() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let mut file = OnDisk::default();
        file.note(&Op::Write(Some(0), vec![1; 3 * BLOCK]));
        file.note(&Op::Sync);
        file.note(&Op::Write(Some(10), vec![2; 2 * BLOCK]));
        let bytes = file.blocks(&mut random);
        assert_eq!((bytes[0], bytes[3 * BLOCK - 1]), (1, 1));
        seen.insert((bytes[10], bytes[BLOCK], bytes[2 * BLOCK]));
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn when_the_power_fails_nothing_is_lost__d5() {
    if setting("TICKWHEEL_SOAK").is_none() {
        return;
    }
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("left out: there is no strace");
        return;
    }
    let mut random = fastrand::Rng::with_seed(5);
    let (mut losses, mut repeats) = (0, 0);
    for run in 0..10 {
        let events = record(10 + 4 * run);
        for loss in 0..20 {
            let is_early = loss == 0;
            let end = if is_early { random.usize(0..200) } else { random.usize(200..events.len()) };
            let trial = lose(&events[..end], &mut random);
            repeats += trial.end().1;
            losses += 1;
        }
        println!("{losses} losses of power, {repeats} messages delivered again");
    }
}
