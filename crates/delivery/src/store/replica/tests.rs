//! Tests of each chain, a model of two machines, and the refusals.

pub(crate) mod memory;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;

use tempfile::TempDir;

use super::base::{Rows, make};
use super::chain::{Base, Chain, Kind, Link, Row};
use super::following::catch_up;
use super::lease::{LEASE_MS, QUIET_MS};
use super::{Appended, Lease, Replicate, Replication, Role};
use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::incoming::Digest;
use crate::run::settings::Settings;
use crate::scenarios::testing::{ByHand, LONG, START_MS, cancel, folder_in_memory, play_seeds, put, spawn, wait_until};
use crate::store::file::schema::connect;
use crate::store::maintenance::Stop;
use crate::store::maintenance::closed::compact;
use crate::store::sql::failing;
use crate::store::{ActionKind, Filter, Limits, Options, Store};
use crate::{Deliverer, Destination, Event, Letter, Message, Observer, Verdict};
use memory::{Fault, InMemory};

const DAY_MS: i64 = 86_400_000;

/// The suite that each implementation of [`Chain`] passes. `open` connects to the same empty chain each time.
pub(super) fn exercise(open: &dyn Fn() -> Box<dyn Chain>) {
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.newest(), Ok(None));
    assert_eq!(one.read(0), Ok(vec![]));
    let before = Link { n: -1, digest: [0; 16] };
    let made = Row::after(before, 0, Kind::Made, b"a store".to_vec());
    assert_eq!(one.append(None, &made), Appended::Stored);
    assert_eq!(other.append(None, &Row::after(before, 0, Kind::Made, b"b".to_vec())), Appended::Refused);
    assert_eq!(one.append(None, &made), Appended::Seen);
    assert_eq!(other.newest(), Ok(Some(made.head())));
    let taken = Row::after(made.link, 1, Kind::Taken, Vec::new());
    assert_eq!(one.append(Some(made.link), &taken), Appended::Stored);
    let late = Row::after(made.link, 1, Kind::Taken, b"late".to_vec());
    assert_eq!(other.append(Some(made.link), &late), Appended::Refused, "another row has its number");
    let unknown = Link { n: 1, digest: [7; 16] };
    let forked = Row::after(unknown, 1, Kind::Group, Vec::new());
    assert_eq!(other.append(Some(unknown), &forked), Appended::Refused, "the row before is another one");
    let far = Link { n: 5, digest: [7; 16] };
    assert_eq!(other.append(Some(far), &Row::after(far, 1, Kind::Group, Vec::new())), Appended::Refused);
    let mut rows = vec![made, taken];
    for size in [0, 1, 100_000, 3_000_000] {
        let at = rows[rows.len() - 1].link;
        let body: Vec<u8> = (0..size).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let row = Row::after(at, 1, Kind::Group, body);
        assert_eq!(one.append(Some(at), &row), Appended::Stored);
        rows.push(row);
    }
    let ended = Row::after(rows[5].link, 1, Kind::Ended, Vec::new());
    assert_eq!(one.append(Some(rows[5].link), &ended), Appended::Stored);
    rows.push(ended);
    assert_eq!(other.newest(), Ok(Some(rows[6].head())));
    let mut read = other.read(1).unwrap();
    while read.len() < 6 {
        let more = other.read(1 + read.len() as i64).unwrap();
        assert!(!more.is_empty());
        read.extend(more);
    }
    assert!(read == rows[1..], "all rows, in order, as they were written");
    assert!(read.windows(2).all(|it| it[1].follows(it[0].link)));
    assert_eq!(other.read(7), Ok(vec![]));
    assert_eq!(other.after(3).map(|it| it.0), Ok(3));
    assert_eq!(other.taken(1), Ok(Some(rows[1].clone())));
    assert_eq!(other.taken(2), Ok(None));
    exercise_bases(&mut *one, &mut *other, &rows);
}

fn exercise_bases(one: &mut dyn Chain, other: &mut dyn Chain, rows: &[Row]) {
    assert_eq!(one.base(), Ok(None));
    let base_at = |place: usize, epoch| Base { at: rows[place].link, epoch, pieces: 2, digest: [9; 16], made_ms: 77 };
    let base = base_at(3, 1);
    let piece = vec![5; 300_000];
    assert_eq!(one.put_piece(3, 1, 1, &piece), Ok(()));
    assert!(one.put_piece(3, 1, 1, &piece).is_err(), "it is there");
    assert_eq!(one.put_piece(3, 1, 2, b"the end"), Ok(()));
    assert_eq!(other.base(), Ok(None), "it is half there");
    assert_eq!(one.put_piece(3, 1, 0, &base.last_piece()), Ok(()));
    assert_eq!(other.base(), Ok(Some(base)));
    let forked = Base { at: Link { digest: [8; 16], ..rows[5].link }, ..base_at(5, 1) };
    assert_eq!(one.put_piece(5, 1, 0, &forked.last_piece()), Ok(()));
    assert_eq!(other.base(), Ok(Some(base)), "the row of the newer one is not in the chain");
    assert_eq!(other.piece(&base, 1), Ok(piece));
    assert_eq!(other.piece(&base, 2), Ok(b"the end".to_vec()));
    while one.trim(&base).unwrap() {}
    let kept = [rows[0].clone(), rows[1].clone(), rows[3].clone()];
    assert_eq!(other.read(0).unwrap()[..3], kept, "row 0, a take-over, and the row of the base");
    let late = Row::after(rows[1].link, 2, Kind::Taken, b"late".to_vec());
    assert_eq!(other.append(Some(rows[1].link), &late), Appended::Refused, "its number is free, and behind the newest");
    let newer = base_at(5, 2);
    assert_eq!(one.put_piece(5, 2, 0, &newer.last_piece()), Ok(()));
    assert_eq!(other.base(), Ok(Some(newer)));
    while one.trim(&newer).unwrap() {}
    assert!(other.piece(&base, 1).is_err(), "it is deleted");
    assert_eq!(other.newest(), Ok(Some(rows[6].head())));
}

#[test]
fn a_chain_in_memory_does_what_every_chain_does() {
    let chain = InMemory::default();
    exercise(&|| Box::new(chain.clone()));
}

static WALL_MS: AtomicI64 = AtomicI64::new(1_000_000);

/// A machine with a disk of its own.
struct Machine {
    folder: TempDir,
    lease: Arc<Lease>,
    store: Option<Store>,
    /// It was given another disk so often.
    disks: usize,
}

impl Machine {
    fn new(chain: &InMemory) -> Self {
        Self { folder: folder_in_memory(), lease: Arc::new(chain.replicate().lease()), store: None, disks: 0 }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(format!("store-{}.db", self.disks))
    }

    /// A new process. It returns once it owns the chain.
    fn open(&mut self, chain: &InMemory) -> Result<(), String> {
        self.open_with(chain.replicate())
    }

    fn open_with(&mut self, to: Replicate) -> Result<(), String> {
        self.lease = Arc::new(to.lease());
        let clock = || Box::new(|| WALL_MS.fetch_add(1, Ordering::Relaxed));
        let mut options = Options::new(7 * DAY_MS, clock(), clock());
        options.replicate = Some((to, self.lease.clone()));
        let opened = Store::open_with(&self.path(), options, Digest::number, "OFF");
        self.store = Some(opened.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Makes a base, and deletes the rows before it. At most so many pieces are stored.
    fn make_base(&self, chain: &InMemory, pieces: Option<usize>) -> bool {
        chain.limit_pieces(pieces);
        let (path, chain, epoch) = (self.path(), &mut chain.clone(), self.lease.figures().epoch);
        let made = make(&path, chain, Some(epoch), 65_536, &Stop::default()).is_ok();
        chain.limit_pieces(None);
        let never = Limits { base_bytes: u64::MAX, ..Limits::default() };
        Rows::default().look_after(&path, chain, &self.lease, never, &Stop::default()).unwrap();
        made
    }

    /// A process without replication writes a group.
    fn write_alone(&self, name: &str) {
        let mut alone = Store::open(&self.path(), Options::new(DAY_MS, Box::new(|| 1), Box::new(|| 1))).unwrap();
        alone.begin().unwrap();
        alone.put_meta(name, 1).unwrap();
        alone.commit().unwrap();
    }

    /// Writes a group. After an error the process ends.
    fn write(&mut self, name: &str) -> bool {
        let store = self.store.as_mut().expect("it is open");
        let mut transact = || {
            store.begin()?;
            store.put_meta(name, 1)?;
            store.commit()
        };
        let written = transact();
        if written.is_err() {
            self.store = None;
        }
        written.is_ok()
    }
}

fn play(seed: u64, is_shown: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let chain = InMemory::default();
    let mut machines = [Machine::new(&chain), Machine::new(&chain)];
    let (mut answered, mut seen) = (Vec::new(), 0);
    for step in 0..80 {
        let which = random.usize(0..2);
        let machine = &mut machines[which];
        let action = random.u8(0..21);
        if is_shown {
            eprintln!("{step}: machine {which}, action {action}, {} rows", chain.rows().len());
        }
        match action {
            0..12 if machine.store.is_some() => {
                let faults =
                    [None, None, Some(Fault::Unheard), Some(Fault::Lost), Some(Fault::Shown), Some(Fault::FailOver)];
                let faults = faults.into_iter().chain([Some(Fault::Cut)]).collect::<Vec<_>>();
                let count = if random.bool() { 0 } else { random.usize(1..5) };
                chain.fail((0..count).map(|_| faults[random.usize(0..faults.len())]).collect());
                if random.u8(0..5) == 0 {
                    failing::after(random.u32(0..7)); // the last one is the commit
                }
                let name = format!("group {step}");
                if machine.write(&name) {
                    answered.push(name);
                }
                failing::end();
                chain.fail(Vec::new());
                chain.mend();
            }
            0..15 if machine.store.is_none() => machine.open(&chain).unwrap(),
            15 => machine.store = None,
            16 => {
                machine.store = None;
                machine.disks += 1;
            }
            17 => {
                chain.now_ms.fetch_add(random.i64(0..QUIET_MS), Ordering::Relaxed);
            }
            18 => {
                if let Some(mut store) = machine.store.take() {
                    store.end_chain();
                }
            }
            19 if machine.store.is_some() => {
                machine.make_base(&chain, random.bool().then(|| random.usize(0..4)));
            }
            _ => chain.fail_over(),
        }
        let holders = machines.iter().filter(|it| it.store.is_some() && it.lease.is_held()).count();
        assert!(holders < 2, "step {step}: two owners may send");
        seen += usize::from(machines.iter().all(|it| it.store.is_some()));
        for machine in machines.iter().filter(|it| it.path().exists()) {
            chain.check_place(&machine.path());
        }
    }
    if seen == 0 {
        return; // nothing to tell apart
    }
    let mut last = Machine::new(&chain);
    last.open(&chain).unwrap();
    chain.check(&last.path());
    let store = last.store.as_ref().unwrap();
    for name in answered {
        assert_eq!(store.get_meta::<i64>(&name).unwrap(), Some(1), "{name} was answered, and is lost");
    }
}

#[test]
fn whatever_fails_what_was_answered_is_in_the_chain_and_one_machine_sends_at_a_time() {
    play_seeds(200, play);
}

#[test]
fn an_owner_that_was_stopped_is_refused_and_sends_nothing() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    assert!(one.write("first") && one.lease.is_held());
    let began_ms = chain.now_ms.load(Ordering::Relaxed);
    other.open(&chain).unwrap();
    assert!(chain.now_ms.load(Ordering::Relaxed) - began_ms >= QUIET_MS, "it waited for the first one");
    assert!(!one.lease.is_held() && other.lease.is_held());
    assert!(!one.write("second"), "it was refused");
    assert_eq!(other.store.as_ref().unwrap().get_meta::<i64>("first").unwrap(), Some(1));
}

#[test]
fn of_two_standbys_that_take_over_at_the_same_time_one_is_the_owner() {
    let chain = InMemory::default();
    let [mut one, mut other, mut late] = [(); 3].map(|()| Machine::new(&chain));
    one.open(&chain).unwrap();
    one.store = None; // it is killed
    let ((taken, is_taken), (go_on, goes_on)) = (channel(), channel());
    let (send, opened) = channel();
    let (of_other, of_clock) = (chain.clone(), chain.now_ms.clone());
    let taken_ms = Arc::new(AtomicI64::new(0));
    let note = taken_ms.clone();
    chain.before_inserts(vec![Box::new(move || {
        let nothing = || Box::new(|| ()) as Box<dyn FnOnce() + Send>;
        let second = Box::new(move || {
            taken.send(()).unwrap();
            goes_on.recv_timeout(LONG).unwrap();
        });
        of_other.before_inserts(vec![nothing(), second]);
        spawn(move || send.send(other.open(&of_other)));
        is_taken.recv_timeout(LONG).unwrap();
        note.store(of_clock.load(Ordering::Relaxed), Ordering::Relaxed);
    })]);
    late.open(&chain).unwrap();
    let waited_ms = chain.now_ms.load(Ordering::Relaxed) - taken_ms.load(Ordering::Relaxed);
    assert!(waited_ms >= QUIET_MS, "both are owners");
    go_on.send(()).unwrap();
    let error = opened.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(error.contains("another process has taken the store over"), "{error}");
    assert_eq!((late.lease.figures().role, late.lease.figures().epoch), (Role::Owner, 3));
}

#[test]
fn a_standby_shows_its_lag_and_the_owner_and_can_be_stopped() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let of_owner =
        Replication { role: Role::Owner, epoch: 1, owner: Some((name, std::process::id())), ..Replication::default() };
    assert_eq!(one.lease.figures(), of_owner);
    for number in 0..30 {
        assert!(one.write(&format!("group {number}")));
    }
    let (seen, stop) = (Arc::new(Mutex::new(Vec::<Replication>::new())), Arc::new(AtomicI64::new(0)));
    let (note, looks) = (seen.clone(), stop.clone());
    let to = chain.replicate().while_opening(move |it| {
        note.lock().push(it.clone());
        looks.fetch_add(1, Ordering::Relaxed) < 12
    });
    let error = other.open_with(to).unwrap_err();
    assert_eq!(error, crate::DeliveryError::Closed.to_string());
    let seen = std::mem::take(&mut *seen.lock());
    assert!(seen.iter().all(|it| it.role == Role::Standby));
    assert!(seen.iter().any(|it| it.lag_rows > 10 && it.lag_bytes > 0), "{seen:?}");
    assert_eq!(seen.last().map(|it| (it.lag_rows, &it.owner)), Some((0, &of_owner.owner)));
    assert!(chain.now_ms.load(Ordering::Relaxed) < QUIET_MS && one.lease.is_held());
    // While PostgreSQL does not answer, the lag grows.
    chain.fail(vec![Some(Fault::Lost); 30]);
    assert!(one.write("late"));
    chain.now_ms.fetch_add(1, Ordering::Relaxed);
    assert_eq!(one.lease.figures().lag_ms, 0, "it is confirmed");
}

#[test]
fn a_lease_counts_from_the_begin_of_an_insert() {
    let chain = InMemory::default();
    let mut one = Machine::new(&chain);
    one.open(&chain).unwrap();
    let clock = chain.now_ms.clone();
    chain.before_inserts(vec![Box::new(move || clock.store(1_500 + clock.load(Ordering::Relaxed), Ordering::Relaxed))]);
    assert!(one.write("slow") && one.lease.is_held());
    chain.now_ms.fetch_add(500, Ordering::Relaxed);
    assert!(!one.lease.is_held(), "2 s have passed since the insert began");
}

/// One owner has sends under way when its lease ends, and another takes over. Each send may arrive until it is cut off.
#[test]
fn nothing_arrives_after_its_cancel_was_answered_though_an_earlier_owner_still_sends() {
    play_seeds(100, |seed, _| {
        let mut random = fastrand::Rng::with_seed(seed);
        let chain = InMemory::default();
        let time = || chain.now_ms.load(Ordering::Relaxed);
        let settings = |sink_timeout_ms| Settings {
            sink_timeout_ms,
            replicate: Some(chain.replicate()),
            ..crate::scenarios::testing::settings()
        };
        let one = ByHand::start(settings(5_000));
        one.give((0..8).map(|id: i64| put(None, &id.to_string(), START_MS + 1 + id % 2)).collect());
        one.advance_ms(2);
        chain.now_ms.fetch_add(random.i64(0..LEASE_MS), Ordering::Relaxed);
        let mut arrives_ms = BTreeMap::new();
        for _ in 0..random.usize(1..8) {
            let Some((_, sent)) = one.engine.take(1, 1 << 20, true) else { break };
            arrives_ms.insert(sent[0].id().to_owned(), time() + random.i64(0..5_000));
        }
        let bounds = Bounds { messages: random.usize(1..10), ..Bounds::default() };
        let other = ByHand::start(Settings { bounds, ..settings(1_000) }); // it had a longer time-out
        let began_ms = time();
        let is_bulk = random.bool();
        while time() < began_ms + 6_000 {
            let step = random.u64(1..300);
            other.advance_ms(step);
            chain.now_ms.fetch_add(step as i64, Ordering::Relaxed);
            other.write();
            let id = random.u8(0..8).to_string();
            if is_bulk {
                let filter = Filter { due_from_ms: Some(0), ..Filter::default() };
                other.give(vec![Item::Act { id: time().to_string(), kind: ActionKind::Cancel, filter }]);
            }
            let answer = other.give(vec![cancel(None, &id)])[0];
            if answer == Answer::Cancelled {
                assert!(arrives_ms.get(&id).is_none_or(|it| *it <= time()), "{id} is still under way");
            } else {
                assert_eq!(answer, Answer::Delivering);
                assert!(time() <= began_ms + 5_000, "each send is over");
            }
        }
    });
}

#[test]
fn a_store_that_was_closed_is_taken_over_at_once() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    one.store.take().unwrap().end_chain();
    let began_ms = chain.now_ms.load(Ordering::Relaxed);
    other.open(&chain).unwrap();
    assert_eq!(chain.now_ms.load(Ordering::Relaxed), began_ms);
}

#[test]
fn rows_that_are_lost_are_found_by_the_owner_and_by_its_file() {
    let chain = InMemory::default();
    let mut one = Machine::new(&chain);
    one.open(&chain).unwrap();
    assert!(one.write("first") && one.write("second"));
    chain.lose(1);
    assert!(!one.write("third"));
    let error = one.open(&chain).unwrap_err();
    assert!(error.contains("PostgreSQL has not the row"), "{error}");
}

#[test]
fn a_file_of_another_store_or_without_the_chain_is_refused() {
    let (chain, another) = (InMemory::default(), InMemory::default());
    let mut one = Machine::new(&chain);
    one.open(&chain).unwrap();
    one.store = None;
    let mut of_another = Machine::new(&another);
    of_another.open(&another).unwrap();
    for rows in ["as they are", "deleted before a base"] {
        let error = one.open(&another).unwrap_err();
        assert!(error.contains("the chain is of another store than the file: correct the address"), "{rows}: {error}");
        assert!(of_another.write("group") && of_another.make_base(&another, None));
    }
    let alone = || Options::new(DAY_MS, Box::new(|| 1), Box::new(|| 1));
    let error = Store::open(&one.path(), alone()).unwrap_err().to_string();
    assert!(error.contains("only a process with --replicate-to may write it"), "{error}");
    let error = compact(&one.path(), &Stop::default()).unwrap_err().to_string();
    assert!(error.contains("can't be compacted"), "{error}");
    let other = Machine::new(&chain);
    drop(Store::open(&other.path(), alone()).unwrap());
    let error = { other }.open(&chain).unwrap_err();
    assert!(error.contains("the chain has begun with another file"), "{error}");
}

struct Told(std::sync::mpsc::Sender<Event>);

impl Observer for Told {
    fn letters(&self, _: &[Letter]) -> Result<(), DeliveryError> {
        Ok(())
    }

    fn events(&self, events: Vec<Event>) {
        for event in events {
            self.0.send(event).unwrap();
        }
    }
}

#[test]
fn a_base_that_can_not_be_made_is_told_once_and_made_later() {
    let (chain, folder) = (InMemory::default(), folder_in_memory());
    let (send, told) = channel();
    let settings = Settings {
        replicate: Some(chain.replicate()),
        limits: Limits { base_bytes: 0, base_look_ms: 1, ..Limits::default() },
        observer: Arc::new(Told(send)),
        ..Settings::default()
    };
    let deliverer =
        Deliverer::open_with(folder.path().join("s.db"), Destination::function(|_| Verdict::Delivered), settings);
    let deliverer = deliverer.unwrap();
    let is_whole = || chain.clone().base().unwrap().map(|it| it.at) == chain.rows().last().map(|it| it.link);
    for id in ["one", "two"] {
        wait_until("a base of all rows", is_whole);
        chain.limit_pieces(Some(0));
        deliverer.put(Message::after(id, std::time::Duration::from_secs(3_600), "1")).unwrap();
        let failed = Event::BaseFailed { reason: "the connection was lost".to_owned() };
        assert_eq!(told.recv_timeout(LONG).unwrap(), failed);
        let refused = chain.pieces_refused();
        wait_until("three tries more", || chain.pieces_refused() >= refused + 3);
        chain.limit_pieces(None);
        wait_until("a base of all rows", is_whole);
        assert!(told.try_recv().is_err(), "it was told once");
    }
    deliverer.close(None).unwrap();
}

fn has(machine: &Machine, name: &str) -> bool {
    machine.store.as_ref().unwrap().get_meta::<i64>(name).unwrap() == Some(1)
}

#[test]
fn a_new_machine_and_one_that_was_away_for_long_begin_with_the_newest_whole_base() {
    let chain = InMemory::default();
    let [mut one, mut away, mut new] = [(); 3].map(|()| Machine::new(&chain));
    away.open(&chain).unwrap();
    assert!(away.write("by the first"));
    away.store = None;
    one.open(&chain).unwrap();
    assert!(one.write("before") && one.make_base(&chain, None));
    let first_at = chain.trimmed();
    assert!(first_at > 2 && one.lease.figures().base_ms.is_some());
    assert!(one.write("between") && !one.make_base(&chain, Some(1)), "it is half there");
    assert_eq!(chain.trimmed(), first_at);
    assert!(one.write("after"));
    for machine in [&mut away, &mut new] {
        machine.open(&chain).unwrap();
        assert!(["by the first", "before", "between", "after"].iter().all(|it| has(machine, it)));
        machine.store.take().unwrap().end_chain();
    }
    assert!(one.lease.figures().role == Role::QuietOwner && !one.write("late"));
    one.open(&chain).unwrap();
    assert!(one.make_base(&chain, None) && chain.trimmed() > first_at, "the half one is replaced");
    chain.check(&one.path());
}

#[test]
fn a_file_with_rows_that_were_lost_is_refused_though_a_base_is_newer() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    assert!(one.write("first") && one.write("second"));
    chain.lose(1);
    other.open(&chain).unwrap();
    assert!(other.write("third") && other.write("fourth") && other.make_base(&chain, None));
    one.store = None;
    let error = one.open(&chain).unwrap_err();
    assert!(error.contains("PostgreSQL has not the row"), "{error}");
}

#[test]
fn a_damaged_base_changes_no_file() {
    let chain = InMemory::default();
    let (mut one, mut new) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    assert!(one.write("first") && one.make_base(&chain, None));
    chain.damage_piece();
    let error = new.open(&chain).unwrap_err();
    assert!(error.contains("is damaged"), "{error}");
    assert!(!super::is_replicated(&rusqlite::Connection::open(new.path()).unwrap()).unwrap());
}

#[test]
fn a_store_with_messages_is_moved_in_and_its_base_comes_before_anything_else() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.write_alone("before");
    chain.limit_pieces(Some(1));
    one.open(&chain).unwrap_err();
    chain.limit_pieces(None);
    assert_eq!(chain.rows().len(), 1, "nobody owns it");
    let error = other.open(&chain).unwrap_err();
    assert!(error.contains("start the machine that has its file"), "{error}");
    one.open(&chain).unwrap();
    assert!(one.write("after"));
    one.store.take().unwrap().end_chain();
    other.open(&chain).unwrap();
    assert!(has(&other, "before") && has(&other, "after"));
    chain.check(&other.path());
}

#[test]
fn a_store_is_made_from_the_chain_and_leaves_it_for_good() {
    let chain = InMemory::default();
    let (mut one, restored) = (Machine::new(&chain), Machine::new(&chain));
    chain.replicate().restore(restored.path()).unwrap_err();
    assert_eq!((chain.rows().len(), restored.path().exists()), (0, false), "there was nothing to restore");
    one.open(&chain).unwrap();
    assert!(one.write("first"));
    chain.replicate().restore(restored.path()).unwrap();
    let error = chain.replicate().restore(restored.path()).unwrap_err().to_string();
    assert!(error.contains("exists: name a new file"), "{error}");
    chain.replicate().leave(restored.path()).unwrap();
    assert!(!one.write("second"), "it is not the owner any more");
    let alone = Store::open(&restored.path(), Options::new(DAY_MS, Box::new(|| 1), Box::new(|| 1))).unwrap();
    assert_eq!(alone.get_meta::<i64>("first").unwrap(), Some(1));
    let error = one.open(&chain).unwrap_err();
    assert!(error.contains("has left replication"), "{error}");
}

#[test]
fn a_file_that_was_empty_at_its_first_try_brings_what_it_got_since() {
    for fault in [Fault::Lost, Fault::Unheard] {
        let chain = InMemory::default();
        let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
        chain.fail(vec![Some(fault)]);
        one.open(&chain).unwrap_err();
        one.write_alone("before");
        if fault == Fault::Unheard {
            let error = one.open(&chain).unwrap_err();
            assert!(error.contains("while it was empty"), "{error}");
            continue;
        }
        one.open(&chain).unwrap();
        assert!(one.write("after"));
        one.store.take().unwrap().end_chain();
        other.open(&chain).unwrap();
        assert!(has(&other, "before") && has(&other, "after"));
    }
}

#[test]
fn a_chain_whose_end_was_not_heard_is_left_by_the_next_try_and_by_no_other_file() {
    let chain = InMemory::default();
    let (mut one, mut other) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    assert!(one.write("first"));
    one.store.take().unwrap().end_chain();
    other.open(&chain).unwrap();
    other.store.take().unwrap().end_chain();
    chain.fail(vec![Some(Fault::Unheard), None]); // the take-over is heard
    let rows = chain.clone();
    let stopped = chain.replicate().while_opening(move |_| rows.rows().iter().all(|it| it.kind != Kind::Left));
    assert!(matches!(stopped.leave(one.path()).unwrap_err(), DeliveryError::Closed));
    let error = chain.replicate().leave(other.path()).unwrap_err().to_string();
    assert!(error.contains("its chain has ended") && error.contains("tickwheel store backup"), "{error}");
    chain.replicate().leave(one.path()).unwrap();
    one.write_alone("second");
}

#[test]
fn a_file_at_a_take_over_whose_next_rows_were_deleted_is_filled_from_the_base() {
    let chain = InMemory::default();
    let (mut one, away) = (Machine::new(&chain), Machine::new(&chain));
    one.open(&chain).unwrap();
    one.store = None;
    let mut db = connect(&away.path(), "OFF", None).unwrap();
    for epoch in [2, 3] {
        let newest = chain.clone().newest().unwrap().unwrap();
        let taken = Row::after(newest.link, epoch, Kind::Taken, format!("{epoch} 1 host").into_bytes());
        assert_eq!(chain.clone().append(Some(newest.link), &taken), Appended::Stored);
        if epoch == 2 {
            catch_up(&mut db, &mut chain.clone(), &away.lease).unwrap();
        }
    }
    one.open(&chain).unwrap();
    assert!(one.write("after") && one.make_base(&chain, None));
    let head = catch_up(&mut db, &mut chain.clone(), &away.lease).unwrap();
    assert_eq!(Some(head), chain.clone().newest().unwrap());
}

#[test]
fn a_store_that_is_opened_anew_asks_no_program_whether_to_go_on() {
    let chain = InMemory::default();
    let asked = Arc::new(AtomicI64::new(0));
    let counted = asked.clone();
    let to = chain.replicate().while_opening(move |_| counted.fetch_add(1, Ordering::Relaxed) >= 0);
    let one = Machine::new(&chain);
    let lease = Arc::new(to.lease());
    let open = || {
        let mut options = Options::new(DAY_MS, Box::new(|| 1), Box::new(|| 1));
        options.replicate = Some((to.clone(), lease.clone()));
        Store::open_with(&one.path(), options, Digest::number, "OFF").unwrap()
    };
    drop(open());
    let before = asked.load(Ordering::Relaxed);
    assert!(before > 0);
    drop(open());
    assert_eq!(asked.load(Ordering::Relaxed), before);
}
