//! The engine is killed with `SIGKILL` at random moments and at chosen ones, and started again (rules D3, D4, D5, D7).
//!
//! ```text
//! TICKWHEEL_SOAK=1 cargo test -p tickwheel-delivery kill     # 200 kills
//! ```
//!
//! The killed process is this test program, started again for its test `child`. It writes each submitted item and each
//! answer to files, and its sink writes each delivered message to a third file. Lines that were written before a kill
//! stay written. The three files must show:
//!
//! - an accepted message is delivered, unless it was cancelled;
//! - nothing is early, and after a cancel nothing goes out in the same process or a later one;
//! - the messages of a key go out in order, over all processes together;
//! - a message that is delivered again is marked, and an earlier process delivered it before;
//! - a message that waits for an event comes with one cause, however often it comes;
//! - each event has let go as many messages as its answer says.

mod disk;
mod power;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::testing::test_named;
use crate::Event;
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::DeliveryError;
use crate::due::window::Bounds;
use crate::group::items::{Answers, Item};
use crate::message::events::Event as Happening;
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Cancel, Message, checked};
use crate::run::settings::{Observer, Settings};
use crate::run::threads::Running;
use crate::sinks::file::{LineSink, Target};
use crate::sinks::{OpenSink, Opened};
use crate::store::file::owner::Ownership;
use crate::store::maintenance::check;
use crate::store::{Letter, Limits};

const KEYS: u64 = 37;
/// Messages of one ticket, and the time between two tickets: 20,000 messages a second.
const TICKET: u64 = 100;
const EVERY: Duration = Duration::from_millis(5);
/// How long to wait for a process to reach a place.
const LIFE: Duration = Duration::from_secs(3);

/// Places in the writer, from the beginning of a group until its answers, and in the upkeep of the store.
const PLACES: &[&str] = &[
    "group: begun",
    "BEGIN IMMEDIATE",
    "INTO ledger",
    "INTO messages",
    "INTO bodies",
    "INTO waiting",
    "UPDATE waiting SET redelivered",
    "DELETE FROM waiting",
    "INTO events",
    "UPDATE waits",
    "UPDATE messages SET due_ms",
    "DELETE FROM waits",
    "INTO meta",
    "INTO held_back",
    "INTO run_",
    "INTO runs",
    "INTO filters",
    "DELETE FROM runs",
    "DELETE FROM run_",
    "DELETE FROM bodies",
    "DELETE FROM messages",
    "DELETE FROM ledger",
    "INTO days",
    "DELETE FROM days",
    "incremental_vacuum",
    "COMMIT",
    "group: committed",
    "group: placed",
    "group: answering",
    "checkpoint",
];

/// Places that are reached seldom.
const RARE: &[&str] = &[
    "UPDATE waiting SET redelivered",
    "INTO runs",
    "INTO filters",
    "DELETE FROM runs",
    "DELETE FROM run_",
    "INTO days",
    "DELETE FROM days",
    "incremental_vacuum",
];

struct Quiet;

impl Observer for Quiet {
    fn letters(&self, _: &[Letter]) -> Result<(), DeliveryError> {
        Ok(())
    }

    fn events(&self, _: Vec<Event>) {}
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn settings(keep_ids_ms: u64) -> Settings {
    let limits = Limits {
        names_in_memory: 700,
        blocks_in_step: 2,
        runs_in_merge: 2,
        chunk: 128,
        chunks_open: 8,
        bodies_in_batch: 400,
        bodies_in_step: 100,
        forgotten_in_step: 200,
        vacuum_pages: 4,
        free_pages: 8,
        shortest_part_ms: 20,
        ..Limits::default()
    };
    let bounds = Bounds { messages: 4_000, bytes: 2 << 20, lane_messages: 40, lane_bytes: 1 << 20 };
    Settings { horizon_ms: 200, keep_ids_ms, bounds, limits, observer: Arc::new(Quiet), ..Settings::default() }
}

fn appending(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// Whether the message waits for an event.
fn waits(number: u64) -> bool {
    number % 11 == 3
}

fn key_of(number: u64) -> Option<String> {
    if waits(number) {
        return Some(format!("w{}", number % 7));
    }
    (!number.is_multiple_of(5)).then(|| format!("k{}", number % KEYS))
}

fn put(number: u64, due_ms: i64) -> Item {
    let payload = vec![b'1'; (number % 90) as usize + 1];
    let body = Body::new(key_of(number).as_deref(), &format!("i{number}"), &payload, true);
    let message = Message { body, due_ms, delay_ms: None };
    let message = if waits(number) { message.until_event(["go"]) } else { message };
    Item::Put(Incoming::of(checked(message, 1_000).unwrap()))
}

fn cancel(number: u64) -> Item {
    Item::Cancel(Cancel { id: format!("i{number}"), key: key_of(number), keep_days: 0 })
}

fn event(number: u64) -> Item {
    let (id, key, event, payload) =
        (format!("e{number}"), format!("w{}", number % 7), "go".to_owned(), b"1"[..].into());
    Item::Event { event: Happening { id, key, event, remember_ms: None, payload, is_json: true }, origin: None }
}

/// An item as it is written to a file, once when it is submitted and once with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Put(u64, i64),
    Cancel(u64),
    Event(u64),
}

impl Asked {
    fn item(self) -> Item {
        match self {
            Self::Put(number, due_ms) => put(number, due_ms),
            Self::Cancel(number) => cancel(number),
            Self::Event(number) => event(number),
        }
    }

    fn line(self) -> String {
        match self {
            Self::Put(number, due_ms) => format!("put {number} {due_ms}"),
            Self::Cancel(number) => format!("cancel {number} 0"),
            Self::Event(number) => format!("event {number} 0"),
        }
    }

    /// The line may go on with an answer.
    fn read(line: &str) -> (Self, Option<&str>) {
        let mut words = line.split(' ');
        let kind = words.next().unwrap();
        let number = words.next().unwrap().parse().unwrap();
        let due_ms = words.next().unwrap().parse().unwrap();
        let asked = match kind {
            "put" => Self::Put(number, due_ms),
            "cancel" => Self::Cancel(number),
            _ => Self::Event(number),
        };
        (asked, words.next())
    }
}

// --- The killed process --------------------------------------------------------

#[test]
#[ignore = "it is started by the tests below"]
fn child() {
    let Some(folder) = setting("TICKWHEEL_KILL_FOLDER") else { return };
    let folder = Path::new(&folder);
    let is_last = setting("TICKWHEEL_KILL_LAST").is_some();
    let keep_ids_ms: u64 = setting("TICKWHEEL_KILL_KEEP").unwrap().parse().unwrap();
    let ownership = Ownership::take(&folder.join("store.db"), &mut |_| (), &mut || true).unwrap();
    let sink = folder.join("out/delivered");
    let open: OpenSink = Arc::new(move |_| Ok(Opened::Sink(Box::new(LineSink::open(&Target::File(sink.clone()))?))));
    let running = Running::open(ownership, settings(keep_ids_ms), open, 2).unwrap();
    running.start(running.engine().wall_clock());
    let submitted = fs::read_to_string(folder.join("submitted")).unwrap_or_default();
    let answered = fs::read_to_string(folder.join("answered")).unwrap_or_default();
    let answered: BTreeSet<Asked> = answered.lines().map(|line| Asked::read(line).0).collect();
    let (mut next, mut last_due) = (0, BTreeMap::new());
    let mut again = Vec::new();
    for (asked, _) in submitted.lines().map(Asked::read) {
        if let Asked::Put(number, due_ms) = asked {
            next = next.max(number + 1);
            last_due.insert(key_of(number), due_ms);
        }
        if !answered.contains(&asked) {
            again.push(asked);
        }
    }
    // A message may have been accepted, delivered and forgotten. Then its producer must not submit it again.
    if keep_ids_ms > 60_000 {
        again.chunks(TICKET as usize).for_each(|part| submit(&running, folder, part.to_vec()).unwrap());
    }
    if is_last {
        assert!(running.wait_until_empty(Duration::from_secs(60)).unwrap(), "it does not come to an end");
        running.close(None).unwrap();
        return;
    }
    if setting("TICKWHEEL_KILL_AT").is_some_and(|place| place.contains("incremental_vacuum")) {
        // A store gives pages back only after it has become much smaller. The process is killed there.
        running.wait_until_empty(LIFE).unwrap();
        std::thread::park_timeout(LIFE);
    }
    let mut random = fastrand::Rng::with_seed(next);
    let mut said = appending(&folder.join("submitted"));
    for turn in 1.. {
        let start = Instant::now();
        let mut asked = Vec::new();
        for number in next..next + TICKET {
            let key = key_of(number);
            let mut due_ms = SystemWallTime.now_us() / 1000 + random.i64(-10..500);
            if waits(number) {
                due_ms += random.i64(100..3_000);
            } else if key.is_some() {
                let last = last_due.entry(key).or_insert(i64::MIN);
                due_ms = due_ms.max(*last);
                *last = due_ms;
            }
            asked.push(Asked::Put(number, due_ms));
            if number > 500 && random.u8(0..20) == 0 {
                let cancelled = number - random.u64(1..500);
                asked.push(if waits(cancelled) { Asked::Event(number) } else { Asked::Cancel(cancelled) });
            }
        }
        next += TICKET;
        let lines: String = asked.iter().map(|it| it.line() + "\n").collect();
        said.write_all(lines.as_bytes()).unwrap();
        if let Err(error) = submit(&running, folder, asked) {
            assert!(setting("TICKWHEEL_KILL_SYNC").is_some(), "{error}");
            running.close(None).unwrap_err();
            std::process::exit(3);
        }
        std::thread::park_timeout(EVERY.saturating_sub(start.elapsed()));
        assert!(turn < 12_000, "it was not killed");
    }
}

fn submit(running: &Running, folder: &Path, asked: Vec<Asked>) -> Result<(), DeliveryError> {
    let items = asked.iter().map(|it| it.item()).collect();
    let mut file = appending(&folder.join("answered"));
    let complete = move |answers: Result<Answers, DeliveryError>| {
        let answers = match answers {
            Err(_) if setting("TICKWHEEL_KILL_SYNC").is_some() => return,
            answers => answers.unwrap(),
        };
        let (let_go, answers) = (answers.let_go.into_iter().collect::<BTreeMap<_, _>>(), answers.given);
        assert_eq!(answers.len(), asked.len());
        let mut lines = Vec::new();
        for (place, (it, answer)) in asked.iter().zip(answers).enumerate() {
            let count = let_go.get(&place).map_or(String::new(), u32::to_string);
            writeln!(lines, "{} {answer:?}{count}", it.line()).unwrap();
        }
        file.write_all(&lines).unwrap();
    };
    running.engine().submit_with(items, Box::new(complete))
}

// --- The process that kills it -------------------------------------------------

/// A store, its sink in a separate folder, and the lengths of the files when each process ended.
struct Trial {
    folder: tempfile::TempDir,
    keep_ids_ms: u64,
    ends: Vec<(usize, usize)>,
    kills: usize,
    lived: Duration,
    missed: Vec<String>,
    /// The power failed: little may be there.
    is_cut: bool,
}

impl Trial {
    fn new(keep_ids_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        Self {
            folder,
            keep_ids_ms,
            ends: Vec::new(),
            kills: 0,
            lived: Duration::ZERO,
            missed: Vec::new(),
            is_cut: false,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                &test_named(module_path!(), "child"),
                "--include-ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("TICKWHEEL_KILL_FOLDER", self.folder.path())
            .env("TICKWHEEL_KILL_KEEP", self.keep_ids_ms.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// A kill may cut off a long write. The next process ends the cut line of the sink. A cut line of the other files
    /// is removed.
    fn note_end(&mut self) {
        for name in ["submitted", "answered"] {
            let path = self.folder.path().join(name);
            let Ok(text) = fs::read(&path) else { continue };
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            File::options().write(true).open(path).unwrap().set_len(whole as u64).unwrap();
        }
        let len = |name: &str| fs::metadata(self.folder.path().join(name)).map_or(0, |it| it.len() as usize);
        self.ends.push((len("out/delivered"), len("answered")));
    }

    /// Kills the process after this time, or at a place if the process gets there.
    fn kill(&mut self, after: Duration, place: Option<String>) {
        let mut command = self.command();
        if let Some(place) = &place {
            command.env("TICKWHEEL_KILL_AT", place);
        }
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        let end = start + after;
        while Instant::now() < end && child.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        if child.try_wait().unwrap().is_none() {
            self.missed.extend(place);
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        self.lived += start.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), None, "the process ended by itself: {said}");
        self.kills += 1;
        self.note_end();
    }

    fn end(mut self) -> (usize, usize) {
        self.run_to_its_end();
        let repeats = self.check();
        if !self.missed.is_empty() {
            println!("not reached: {:?}", self.missed);
        }
        (self.kills, repeats)
    }

    fn run_to_its_end(&mut self) {
        let output = self.command().env("TICKWHEEL_KILL_LAST", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "it failed: {said}");
        self.note_end();
    }

    fn submitted(&self) -> usize {
        let lines = fs::read_to_string(self.folder.path().join("submitted")).unwrap();
        lines.lines().filter(|line| line.starts_with("put")).count()
    }

    /// The number of the process that wrote it.
    fn life(&self, at: usize, of: impl Fn(&(usize, usize)) -> usize) -> usize {
        self.ends.iter().position(|end| at < of(end)).unwrap()
    }

    fn check(&self) -> usize {
        check::tests::assert_whole(&self.folder.path().join("store.db"), Digest::number);
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let (submitted, answered, delivered) = (read("submitted"), read("answered"), read("out/delivered"));
        let submitted: BTreeSet<Asked> = submitted.lines().map(|line| Asked::read(line).0).collect();
        let due: BTreeMap<u64, i64> = submitted
            .iter()
            .filter_map(|asked| if let Asked::Put(number, due_ms) = asked { Some((*number, *due_ms)) } else { None })
            .collect();
        let (mut accepted, mut cancelled, mut answers) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let (mut at, mut let_go) = (0, BTreeMap::new());
        for line in answered.lines() {
            let (asked, answer) = Asked::read(line);
            let life = self.life(at, |end| end.1);
            at += line.len() + 1;
            answers.insert(asked);
            match (asked, answer.unwrap()) {
                (Asked::Put(number, _), "Accepted" | "Duplicate")
                | (Asked::Cancel(number), "Delivered" | "Delivering") => drop(accepted.insert(number)),
                (Asked::Put(number, _) | Asked::Cancel(number), "Cancelled") => {
                    cancelled.entry(number).or_insert(life);
                }
                (Asked::Cancel(_), "Unknown") if self.keep_ids_ms < 60_000 => {}
                (Asked::Event(number), answer) if answer.starts_with("LetGo") => {
                    let count: usize = answer[5..].parse().unwrap();
                    assert_eq!(*let_go.entry(number).or_insert(count), count, "e{number} has two answers");
                }
                (Asked::Put(number, _), "Full") if waits(number) => {}
                (asked, answer) => panic!("{asked:?} was answered {answer}"),
            }
        }
        let in_doubt: BTreeSet<u64> = submitted
            .iter()
            .filter_map(|asked| if let Asked::Cancel(number) = asked { Some(*number) } else { None })
            .filter(|number| !answers.contains(&Asked::Cancel(*number)))
            .collect();
        if self.keep_ids_ms > 60_000 {
            assert!(submitted.iter().all(|asked| answers.contains(asked)), "not everything was answered in the end");
        }
        let (mut first, mut highest): (BTreeMap<u64, usize>, BTreeMap<(String, usize), u64>) = Default::default();
        let mut order: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut causes: BTreeMap<u64, String> = BTreeMap::new();
        let (mut at, mut repeats) = (0, 0);
        for line in delivered.lines() {
            let life = self.life(at, |end| end.0);
            at += line.len() + 1;
            let it: serde_json::Value = match serde_json::from_str(line) {
                Ok(it) => it,
                Err(_) if self.ends.iter().any(|end| end.0 == at - 1) => continue, // cut off
                Err(error) => panic!("{error}: {line}"),
            };
            let text = |name: &str| it[name].as_str().unwrap();
            let number: u64 = text("id")[1..].parse().unwrap();
            assert!(text("delivered_at") >= text("due"), "early: {line}");
            assert!(it["lateness_ms"].as_f64().unwrap() >= 0.0, "early: {line}");
            assert!(due.contains_key(&number), "it was never submitted: {line}");
            assert!(cancelled.get(&number).is_none_or(|cancel| life < *cancel), "it was cancelled: {line}");
            if waits(number) {
                let cause = it["event"]["id"].as_str().unwrap_or(text("cause")).to_owned();
                let before = causes.entry(number).or_insert_with(|| cause.clone());
                assert_eq!(*before, cause, "it has two causes: {line}");
            }
            if let Some(before) = first.insert(number, life) {
                repeats += 1;
                assert!(it["redelivered"] == true, "again, and not marked: {line}");
                assert!(before < life, "twice by one process: {line}");
            } else if let Some(key) = it["key"].as_str().filter(|_| !waits(number)) {
                order.entry(key.to_owned()).or_default().push(number);
            }
            if let Some(key) = it["key"].as_str().filter(|_| !waits(number)) {
                let last = highest.insert((key.to_owned(), life), number);
                assert!(last.is_none_or(|last| last < number), "{line} came after {last:?}");
            }
        }
        for number in accepted.iter().filter(|number| !cancelled.contains_key(number) && !in_doubt.contains(number)) {
            assert!(first.contains_key(number), "{number} is lost");
        }
        let mut came: BTreeMap<&str, usize> = BTreeMap::new();
        for cause in causes.values() {
            *came.entry(cause).or_default() += 1;
        }
        for (number, count) in let_go {
            let came = came.get(format!("e{number}").as_str()).copied().unwrap_or_default();
            assert_eq!(came, count, "e{number} has let go others than it said");
        }
        for (key, numbers) in order {
            assert!(numbers.is_sorted(), "{key} was not in order");
        }
        assert!(first.len() > 100 || self.is_cut, "too little was delivered to show anything");
        repeats
    }
}

/// Runs `count` trials with `kills` kills each, in turn at random moments and at places.
fn trials(count: u64, kills: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut place = seed as usize;
    let (mut killed, mut repeats, mut submitted, mut lived) = (0, 0, 0, Duration::ZERO);
    let mut never_reached: BTreeSet<&str> = PLACES.iter().copied().collect();
    for number in 0..count {
        let mut trial = Trial::new(if number.is_multiple_of(2) { 3_600_000 } else { 400 });
        for kill in 0..kills {
            if kill.is_multiple_of(3) {
                trial.kill(Duration::from_millis(random.u64(30..1_200)), None);
                continue;
            }
            let name = PLACES[place % PLACES.len()];
            place += 1;
            let missed = trial.missed.len();
            let most = if RARE.contains(&name) { 3 } else { 40 };
            trial.kill(LIFE, Some(format!("{}:{name}", random.u64(1..=most))));
            if trial.missed.len() == missed {
                never_reached.remove(name);
            }
        }
        submitted += trial.submitted();
        lived += trial.lived;
        let (more, again) = trial.end();
        killed += more;
        repeats += again;
    }
    let rate = submitted as f64 / lived.as_secs_f64();
    println!("{killed} kills, {submitted} messages at {rate:.0}/s, {repeats} delivered again, all of them marked");
    assert!(never_reached.is_empty() || count < 20, "never killed at {never_reached:?}");
}

#[test]
fn killed_at_any_moment_it_loses_nothing__d5() {
    if setting("TICKWHEEL_SOAK").is_some() {
        trials(20, 10, 0);
    } else {
        trials(2, 6, 0);
    }
}
