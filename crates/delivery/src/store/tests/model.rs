//! The store against a map: any calls in any order, a crash anywhere, names that share eight numbers, tiny limits.

use std::collections::{BTreeMap, BTreeSet};

use super::making::{DAY_MS, Random, Shelf, TINY, count, done, eight_numbers, incoming_with, new, positions};
use crate::store::maintenance::check;
use crate::store::replica::tests::memory::InMemory;
use crate::store::{Accepted, Attempts, Outcome, Position, Store, WaitingRow};

type Name = (Option<&'static str>, String);

const KEEP_MS: i64 = 4_000;
const PART_MS: i64 = KEEP_MS / 8;

#[derive(Clone, Debug)]
struct Row {
    name: Name,
    due_ms: i64,
    payload: usize,
    /// The due time and the payload at acceptance.
    content: (i64, usize),
    lane: Option<i64>,
    outcome: Option<Outcome>,
    at_ms: i64,
    is_near: bool,
    redelivered: bool,
    attempts: u32,
    again: Option<i64>,
    first: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Mark {
    until_ms: i64,
    cursor: Position,
    held_back: BTreeMap<i64, Position>,
}

/// The expected contents of the store, in the simplest form.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<i64, Row>,
    known: BTreeMap<Name, i64>,
    cancels: BTreeSet<Name>,
    last_seq: i64,
    mark: Option<Mark>,
}

impl Model {
    fn open(&self) -> Vec<i64> {
        self.rows.iter().filter(|(_, row)| row.outcome.is_none()).map(|(seq, _)| *seq).collect()
    }

    fn reopened(&mut self) {
        let mark = self.mark.take();
        for (seq, row) in self.rows.iter_mut().filter(|(_, row)| row.outcome.is_none()) {
            let position = (row.due_ms, *seq);
            if let Some(mark) = &mark
                && row.due_ms <= mark.until_ms
            {
                let is_back = row.lane.and_then(|lane| mark.held_back.get(&lane)).is_some_and(|from| position >= *from);
                row.redelivered |= row.is_near || (position <= mark.cursor && !is_back);
            }
            row.is_near = false;
        }
    }
}

struct Run {
    random: Random,
    shelf: Shelf,
    store: Option<Store>,
    model: Model,
    committed: Model,
    seen: BTreeSet<&'static str>,
}

fn payload_of(row: &Row) -> String {
    format!("\"{}\"", "x".repeat(row.payload))
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut shelf = Shelf::new(TINY);
        shelf.keep_ids_ms = KEEP_MS;
        shelf.number = eight_numbers;
        shelf.chain = seed.is_multiple_of(2).then(InMemory::default);
        let mut run = Self {
            random: Random::new(seed),
            shelf,
            store: None,
            model: Model::default(),
            committed: Model::default(),
            seen: BTreeSet::new(),
        };
        run.reopen();
        run
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None; // an open transaction is lost
        if self.shelf.path().exists() {
            check::tests::assert_whole(&self.shelf.path(), eight_numbers);
        }
        let store = self.shelf.open();
        check::tests::assert_whole(&self.shelf.path(), eight_numbers);
        self.shelf.check_replica();
        self.store = Some(store);
        self.model.reopened();
    }

    fn now_ms(&self) -> i64 {
        self.shelf.wall_ms.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn name(&mut self) -> Name {
        let key = [None, Some("k"), Some("\0")][self.random.below(3)];
        let id = match self.random.below(8) {
            0 => "a\0".into(),
            1 => "é'; --".into(),
            _ => self.random.below(40).to_string(),
        };
        (key, id)
    }

    fn accept(&mut self) {
        let now_ms = self.now_ms();
        let wanted: Vec<(Name, i64, usize)> = (0..=self.random.below(5))
            .map(|_| (self.name(), self.random.below(9) as i64, self.random.below(3)))
            .collect();
        let items: Vec<_> = wanted
            .iter()
            .map(|((key, id), due_ms, size)| {
                incoming_with(*key, id, *due_ms, format!("\"{}\"", "x".repeat(*size)).as_bytes())
            })
            .collect();
        let answers = self.store().accept(&items, now_ms).unwrap();
        let mut held = Vec::new();
        for (((name, due_ms, payload), item), answer) in wanted.into_iter().zip(items).zip(answers) {
            let before = self.model.known.get(&name).map(|seq| (*seq, &self.model.rows[seq]));
            // If it is not forgotten, it comes again.
            let dead = before.filter(|(_, row)| row.outcome == Some(Outcome::Dead));
            let dead = dead.map(|(seq, row)| (row.content == (due_ms, payload), row.again, row.first.or(Some(seq))));
            if let Some((seq, row)) = before.filter(|(_, row)| row.outcome != Some(Outcome::Dead)) {
                if let Accepted::Known(known) = &answer {
                    assert_eq!((known.seq, known.due_ms), (seq, row.due_ms), "{name:?}");
                    assert_eq!(known.content == item.content, (due_ms, payload) == row.content);
                    continue;
                }
                assert!(self.may_be_forgotten(seq), "{name:?} is known as {seq}: {answer:?}");
                self.model.rows.remove(&seq);
            }
            self.model.last_seq += 1;
            let seq = self.model.last_seq;
            let is_cancelled = self.model.cancels.remove(&name);
            let outcome = is_cancelled.then_some(Outcome::Cancelled);
            let (mut again, mut first) = (None, None);
            if is_cancelled {
                assert_eq!(answer, Accepted::CancelledBefore(seq));
            } else if let Some((is_same, before, first_before)) = dead.filter(|_| answer != new(seq)) {
                (again, first) = if is_same { (before, first_before) } else { (Some(seq), None) };
                assert_eq!(answer, Accepted::New { seq, again, first, redelivered: is_same }, "{name:?}");
                self.seen.insert(if is_same { "the same again" } else { "another under its name" });
            } else {
                assert_eq!(answer, new(seq), "{name:?}");
            }
            let is_near = !is_cancelled && self.random.one_in(2);
            if !is_cancelled && !is_near {
                held.push(WaitingRow::untried(due_ms, seq, item.lane, 7));
            }
            let (lane, at_ms) = (item.lane, now_ms);
            self.model.known.insert(name.clone(), seq);
            self.model.rows.insert(
                seq,
                Row {
                    name,
                    due_ms,
                    payload,
                    content: (due_ms, payload),
                    lane,
                    outcome,
                    at_ms,
                    is_near,
                    redelivered: false,
                    attempts: 0,
                    again,
                    first,
                },
            );
        }
        self.store().hold(&held).unwrap();
    }

    fn hold(&mut self) {
        let mut seqs = self.store().stragglers();
        let near: Vec<i64> = self.model.open().into_iter().filter(|seq| self.model.rows[seq].is_near).collect();
        if !near.is_empty() && self.random.one_in(2) {
            seqs.push(near[self.random.below(near.len())]);
        }
        seqs.sort_unstable();
        seqs.dedup();
        let redelivered = self.random.one_in(3);
        let mut held = Vec::new();
        for seq in seqs {
            let row = self.model.rows.get_mut(&seq).expect("a straggler is open");
            assert!(row.is_near);
            (row.is_near, row.redelivered) = (false, redelivered);
            held.push(WaitingRow { redelivered, ..WaitingRow::untried(row.due_ms, seq, row.lane, 7) });
        }
        self.store().hold(&held).unwrap();
        let old = self.store().stragglers();
        assert_eq!(old, [0; 0]);
    }

    fn finish(&mut self) {
        let now_ms = self.now_ms();
        let mut finished = Vec::new();
        for seq in self.model.open() {
            if self.random.one_in(3) {
                let outcome = [Outcome::Delivered, Outcome::Delivered, Outcome::Cancelled, Outcome::Dead];
                let outcome = outcome[self.random.below(4)];
                let row = self.model.rows.get_mut(&seq).expect("it is open");
                (row.outcome, row.at_ms) = (Some(outcome), now_ms);
                finished.push(done(seq, row.due_ms, outcome, now_ms));
            }
        }
        finished.reverse();
        self.store().finish(&finished).unwrap();
    }

    /// Often changes the same name, so that it has many numbers; sometimes any other.
    fn change(&mut self) {
        let open = self.model.open();
        let of_one = open.iter().find(|seq| self.model.rows[seq].name == (None, "7".to_owned()));
        let Some(before) = of_one.copied().filter(|_| !self.random.one_in(3)).or(open.first().copied()) else { return };
        let (now_ms, due_ms) = (self.now_ms(), self.random.below(9) as i64);
        let row = self.model.rows[&before].clone();
        let known = self.store().find(row.name.0, &row.name.1).unwrap().expect("it is open");
        let (seq, message) = self.store().move_to(&known, due_ms, None, false).unwrap();
        assert_eq!((known.seq, message.due_ms, message.id()), (before, due_ms, row.name.1.as_str()));
        self.store().finish(&[done(before, row.due_ms, Outcome::Moved, now_ms)]).unwrap();
        self.model.last_seq += 1;
        assert_eq!(seq, self.model.last_seq);
        let old = self.model.rows.get_mut(&before).expect("it was open");
        (old.outcome, old.at_ms) = (Some(Outcome::Moved), now_ms);
        self.model.known.insert(row.name.clone(), seq);
        let first = row.first.or(Some(before));
        let goes_on = Row { due_ms, first, is_near: true, redelivered: false, attempts: 0, ..row };
        self.model.rows.insert(seq, goes_on);
    }

    fn cancel(&mut self) {
        let now_ms = self.now_ms();
        let name = self.name();
        if self.store().find(name.0, &name.1).unwrap().is_none() {
            self.store().remember_cancel(name.0, &name.1, now_ms, Some(i64::MAX)).unwrap();
            self.model.cancels.insert(name);
        }
    }

    fn mark(&mut self) {
        let mut mark = self.model.mark.take().unwrap_or_default();
        if self.random.one_in(3) {
            self.store().note_send_limit(None, &[], &[]).unwrap();
            return;
        }
        mark.until_ms = self.random.below(10) as i64;
        mark.cursor = (self.random.below(10) as i64, self.random.below(30) as i64);
        let lanes: Vec<i64> = self.model.rows.values().filter_map(|row| row.lane).collect();
        let mut changes = Vec::new();
        if !lanes.is_empty() {
            let lane = lanes[self.random.below(lanes.len())];
            let from = (!self.random.one_in(3)).then(|| (self.random.below(10) as i64, self.random.below(30) as i64));
            changes.push((lane, from));
            match from {
                Some(from) => mark.held_back.insert(lane, from),
                None => mark.held_back.remove(&lane),
            };
        }
        self.store().note_send_limit(Some(mark.until_ms), &[(0, mark.cursor)], &changes).unwrap();
        self.model.mark = Some(mark);
    }

    fn note(&mut self) {
        let open = self.model.open();
        if open.is_empty() {
            return;
        }
        let seq = open[self.random.below(open.len())];
        let row = self.model.rows.get_mut(&seq).expect("it is open");
        row.attempts += 1;
        let attempts = Attempts { attempts: row.attempts, ..Attempts::none(seq, 0) };
        let position = (row.due_ms, seq);
        row.redelivered |= !row.is_near;
        let is_near = row.is_near;
        self.store().note_attempts(&[attempts]).unwrap();
        if !is_near {
            self.store().note_may_have_arrived(&[position]).unwrap();
        }
    }

    fn act(&mut self) {
        match self.random.below(12) {
            0..=2 => self.accept(),
            3 | 4 => self.finish(),
            5 => self.cancel(),
            6 => self.change(),
            7 => self.mark(),
            8 => self.note(),
            9 => {
                let is_idle = self.random.one_in(2);
                self.store().upkeep(is_idle).unwrap();
            }
            10 => {
                let ms = [1, 100, PART_MS, PART_MS, KEEP_MS, DAY_MS][self.random.below(6)];
                self.shelf.pass(ms);
            }
            _ => self.hold(),
        }
    }

    fn may_be_forgotten(&self, seq: i64) -> bool {
        self.model.rows.get(&seq).is_none_or(|row| row.outcome.is_some() && self.now_ms() - row.at_ms > KEEP_MS)
    }

    fn check(&mut self) {
        let now_ms = self.now_ms();
        let store = self.store.take().expect("it is open");
        let model = &mut self.model;
        let gone: Vec<i64> = model
            .rows
            .iter()
            .filter(|(_, row)| row.outcome.is_some() && now_ms - row.at_ms > KEEP_MS)
            .map(|(seq, _)| *seq)
            .filter(|seq| !store.db.prepare("SELECT 1 FROM messages WHERE seq = ?").unwrap().exists([seq]).unwrap())
            .collect();
        for seq in gone {
            let row = model.rows.remove(&seq).expect("it was there");
            if model.known.get(&row.name) == Some(&seq) {
                model.known.remove(&row.name);
            }
        }
        let waiting: Vec<(i64, i64, bool, u32)> = {
            let rows = model.rows.iter().filter(|(_, row)| row.outcome.is_none() && !row.is_near);
            rows.map(|(seq, row)| (row.due_ms, *seq, row.redelivered, row.attempts)).collect::<BTreeSet<_>>()
        }
        .into_iter()
        .collect();
        let plan = store.plan(0, (-1, 0), 99, 1_000).unwrap();
        assert_eq!(
            plan.iter().map(|row| (row.due_ms, row.seq, row.redelivered, row.attempts)).collect::<Vec<_>>(),
            waiting
        );
        let suspects: Vec<i64> = store.may_have_arrived().unwrap().iter().map(|row| row.seq).collect();
        assert_eq!(suspects, waiting.iter().filter(|row| row.2).map(|row| row.1).collect::<Vec<_>>());
        let open = model.open();
        assert_eq!(store.open_count(), open.len() as u64);
        assert_eq!(store.last_seq(), model.last_seq);
        assert_eq!(store.remembered_cancels(), model.cancels.len() as u64);
        for (name, seq) in &model.known {
            let row = &model.rows[seq];
            let found = store.find(name.0, &name.1).unwrap().unwrap_or_else(|| panic!("{name:?} is {seq}"));
            let written = row.outcome.filter(|outcome| *outcome != Outcome::Delivered);
            assert_eq!((found.seq, found.due_ms, found.outcome), (*seq, row.due_ms, written));
            assert_eq!(store.is_open(&found).unwrap(), row.outcome.is_none());
            assert_eq!(store.is_near(*seq), row.is_near && row.outcome.is_none());
        }
        let bodies = store.bodies(&open).unwrap();
        for seq in &open {
            let (body, row) = (&bodies[seq].body, &model.rows[seq]);
            assert_eq!((body.key(), body.id()), (row.name.0, row.name.1.as_str()));
            assert_eq!((body.payload(), bodies[seq].due_ms), (payload_of(row).as_bytes(), row.due_ms));
        }
        let ledger: Vec<(i64, Outcome)> = {
            let mut select = store.db.prepare("SELECT seq, outcome FROM ledger ORDER BY seq").unwrap();
            select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
        };
        let expected = model.rows.iter().filter_map(|(seq, row)| Some((*seq, row.outcome?)));
        assert_eq!(
            ledger.into_iter().filter(|(seq, _)| model.rows.contains_key(seq)).collect::<Vec<_>>(),
            expected.collect::<Vec<_>>()
        );
        self.store = Some(store);
    }

    fn group(&mut self) {
        self.store().begin().unwrap();
        for _ in 0..=self.random.below(4) {
            self.act();
        }
        if self.random.one_in(6) {
            self.model = self.committed.clone();
            self.reopen();
        } else {
            self.hold();
            self.store().upkeep(false).unwrap();
            self.store().commit().unwrap();
        }
        self.check();
        let work = self.store().names.work().into_iter().chain(self.store().collector.work());
        self.seen.extend(work.collect::<Vec<_>>());
        if self.random.one_in(8) {
            self.reopen();
            self.check();
        }
        self.committed = self.model.clone();
    }

    /// Finishes all work. Afterwards the store keeps nothing useless.
    fn end(&mut self) {
        let finish: Vec<_> = self
            .model
            .open()
            .iter()
            .map(|seq| done(*seq, self.model.rows[seq].due_ms, Outcome::Delivered, 0))
            .collect();
        self.store().begin().unwrap();
        self.store().finish(&finish).unwrap();
        self.store().commit().unwrap();
        for pause_ms in [0, PART_MS, KEEP_MS + 1, 3_600_000] {
            self.shelf.pass(pause_ms);
            for _ in 0..400 {
                self.store().begin().unwrap();
                let more = self.store().upkeep(true).unwrap();
                self.store().commit().unwrap();
                if !more {
                    break;
                }
            }
        }
        self.shelf.check_replica();
        let store = self.store.as_ref().expect("it is open");
        assert_eq!(positions(store), []);
        for table in ["bodies", "messages", "attempts", "runs", "days", "filters"] {
            assert_eq!(count(store, table), 0, "{table}");
        }
        assert!(count(store, "ledger") <= 1);
        let tables = "SELECT count(*) FROM sqlite_master WHERE name GLOB 'run_[0-9]*'";
        assert_eq!(store.db.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        let sound: String = store.db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}

#[test]
fn whatever_is_called_and_wherever_it_crashes_the_store_knows_what_was_committed() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut run = Run::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..30 {
                run.group();
            }
            run.end();
        }));
        assert!(result.is_ok(), "seed {seed}");
        seen.extend(run.seen);
    }
    let of_names = ["another under its name", "batch", "filter", "garbage", "merge", "no filter", "queue", "runs"];
    let all = [&of_names[..], &["sealed", "survivors", "the same again", "unread"]].concat();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "something did not happen");
}
