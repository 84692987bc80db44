//! What every chain does, a model of two machines, and what is refused.

pub(crate) mod memory;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;

use tempfile::TempDir;

use super::chain::{Chain, Kind, Link, Row};
use super::lease::QUIET_MS;
use super::{Appended, Lease, Replicate, Replication, Role};
use crate::base::sync::Mutex;
use crate::message::incoming::Digest;
use crate::scenarios::testing::{LONG, folder_in_memory, play_seeds};
use crate::store::maintenance::Stop;
use crate::store::maintenance::closed::compact;
use crate::store::sql::failing;
use crate::store::{Options, Store};
use memory::{Fault, InMemory};

const DAY_MS: i64 = 86_400_000;

/// What every implementation of [`Chain`] does. `open` connects to the same empty chain each time.
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
        let action = random.u8(0..20);
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
        std::thread::spawn(move || send.send(other.open(&of_other)));
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
    assert!(error.contains("PostgreSQL has lost row"), "{error}");
}

#[test]
fn a_file_of_another_store_or_without_the_chain_is_refused() {
    let (chain, another) = (InMemory::default(), InMemory::default());
    let mut one = Machine::new(&chain);
    one.open(&chain).unwrap();
    one.store = None;
    Machine::new(&another).open(&another).unwrap();
    let error = one.open(&another).unwrap_err();
    assert!(error.contains("PostgreSQL has lost row"), "{error}");
    let alone = || Options::new(DAY_MS, Box::new(|| 1), Box::new(|| 1));
    let error = Store::open(&one.path(), alone()).unwrap_err().to_string();
    assert!(error.contains("give --replicate-to"), "{error}");
    let error = compact(&one.path(), &Stop::default()).unwrap_err().to_string();
    assert!(error.contains("can't be compacted"), "{error}");
    let other = Machine::new(&chain);
    drop(Store::open(&other.path(), alone()).unwrap());
    let error = { other }.open(&chain).unwrap_err();
    assert!(error.contains("only a new one can be replicated"), "{error}");
}
