//! The work of one transaction for submitted items, and the work that follows after its commit.

mod again;
mod bulk;
mod changes;
mod destinations;
mod events;
pub(crate) mod items;
pub(crate) mod loader;
mod next_occurrence;
pub(crate) mod operations;
pub(crate) mod running_actions;
mod stepped_rules;
mod tenants;
pub(crate) mod writer;
pub(crate) mod writer_queue;

use crate::base::error::OTHER_CONTENT;
use crate::base::summary::Summary;
use crate::base::sync::Mutex;
use crate::due::dispatcher::Dispatcher;
use crate::due::lanes::Slot;
use crate::due::window::{Entry, Gone};
use crate::group::items::{Answer, Answers, Item};
use crate::group::operations::{NAMES_NO_DESTINATION, replied};
use crate::group::running_actions::Actions;
use crate::message::incoming::{Incoming, Origin, lane_in, lane_of};
use crate::message::named::no_destination;
use crate::message::partition::partition_of_incoming;
use crate::message::record::record_of_incoming;
use crate::message::shares::{share_of, tenant_in};
use crate::message::{Body, Reschedule};
use crate::sinks::TakesNamed;
use crate::store::{Accepted, Known, Letter, Outcome, Result, Store, StoredDestination, StoredTenant, WaitingRow};

const DAY_MS: i64 = 86_400_000;
/// How many messages come into memory under one hold of the dispatcher's lock. Senders wait meanwhile.
const ADMIT: usize = 256;
/// Once a group has let go so many messages, it takes no more items.
const LET_GO: u64 = 1_000;

/// What was set, or removed.
#[derive(Debug)]
pub(crate) enum Changed {
    Destination(StoredDestination),
    Tenant(StoredTenant),
}

/// The state of one transaction. It is made for the transaction and used inside it.
pub(super) struct Group<'a> {
    pub(super) counts: Summary,
    pub(super) letters: Vec<Letter>,
    /// Messages in memory that go on the timer after the commit.
    pub(super) admitted: Vec<(Slot, i64)>,
    pub(super) first_due_ms: Option<i64>,
    /// Messages in memory whose bodies are still to be read.
    without_body: Vec<(Slot, i64)>,
    /// Cancelled or moved messages, which memory forgets after the commit. A moved message has its new number beside
    /// it.
    pub(super) taken_back: Vec<(i64, Option<i64>)>,
    /// Messages in memory that wait no more for their next attempt, each with the number of its attempts.
    pub(super) tried_now: Vec<(i64, u32)>,
    /// Actions on many messages. This group does a part of the first action.
    pub(super) actions: &'a mut Actions,
    /// Sending goes on after the commit: `resumes` for all messages, `resumed_lanes` for the messages of these lanes.
    pub(super) resumes: bool,
    pub(super) resumed_lanes: Vec<i64>,
    pub(super) changed: Vec<Changed>,
    /// Whether messages may, or have to, name one.
    pub(super) takes_named: TakesNamed,
    horizon_ms: f64,
    store: &'a mut Store,
    dispatcher: &'a Mutex<Dispatcher>,
    now_ms: i64,
}

impl<'a> Group<'a> {
    pub(super) fn new(
        store: &'a mut Store,
        actions: &'a mut Actions,
        dispatcher: &'a Mutex<Dispatcher>,
        now_ms: i64,
        horizon_ms: f64,
    ) -> Self {
        Self {
            counts: Summary::default(),
            letters: Vec::new(),
            admitted: Vec::new(),
            first_due_ms: None,
            without_body: Vec::new(),
            taken_back: Vec::new(),
            tried_now: Vec::new(),
            actions,
            resumes: false,
            resumed_lanes: Vec::new(),
            changed: Vec::new(),
            takes_named: TakesNamed::No,
            horizon_ms,
            store,
            dispatcher,
            now_ms,
        }
    }

    /// Does the items of a ticket in order. Puts that follow each other are accepted together. Returns the items for which this
    /// group has no time, because it has let go many messages.
    pub(super) fn apply(&mut self, items: Vec<Item>, answered: &mut Answers) -> Result<std::vec::IntoIter<Item>> {
        let answers = &mut answered.given;
        let mut puts = Vec::new();
        let mut items = items.into_iter();
        while self.counts.let_go < LET_GO
            && let Some(item) = items.next()
        {
            match item {
                Item::Put(incoming) => {
                    match self.addressed(incoming)? {
                        Ok(incoming) => {
                            if self.is_full(&incoming, &mut puts, answers, false)? {
                                answers.push(replied("put", Answer::Full));
                            } else {
                                puts.push(incoming);
                            }
                        }
                        Err(refused) => {
                            self.accept(std::mem::take(&mut puts), answers)?;
                            answers.push(replied("put", refused));
                        }
                    }
                    continue;
                }
                _ if !puts.is_empty() => self.accept(std::mem::take(&mut puts), answers)?,
                _ => {}
            }
            match item {
                Item::Put(_) => unreachable!("taken above"),
                Item::Replace { put, at_latest_ms } => {
                    let (answer, due_ms) = match self.addressed(put)? {
                        Ok(put) => self.replace(put, at_latest_ms)?,
                        Err(refused) => (refused, None),
                    };
                    answered.due_ms.extend(due_ms.map(|due_ms| (answers.len(), due_ms)));
                    answers.push(replied("replace", answer));
                }
                Item::Requeue { id, key } => answers.push(replied("requeue", self.requeue(key.as_deref(), &id)?)),
                Item::Event { event, origin } => {
                    let (answer, let_go) = self.event(&event, origin.as_ref())?;
                    answered.let_go.extend(let_go.map(|count| (answers.len(), count)));
                    answers.push(replied("event", answer));
                }
                Item::Forget { key, id } => {
                    let was_remembered = self.store.forget_event(&key, &id)?;
                    let answer = if was_remembered { Answer::Cancelled } else { Answer::Unknown };
                    answers.push(replied("forget_event", answer));
                }
                Item::Cancel(cancel) => answers.push(replied("cancel", self.cancel(&cancel)?)),
                Item::Reschedule(it) => answers.push(replied("reschedule", self.reschedule(&it)?)),
                Item::Act { id, kind, filter } => answers.push(replied("act", self.begin_action(id, kind, filter)?)),
                Item::Pause { key, is_paused } => {
                    let answer = match key {
                        None => self.pause(is_paused)?,
                        Some(key) => self.pause_key(&key, is_paused)?,
                    };
                    answers.push(replied(if is_paused { "pause" } else { "resume" }, answer));
                }
                Item::PauseDestination { name, is_paused } => {
                    let answer = self.pause_destination(&name, is_paused)?;
                    answers.push(replied(if is_paused { "pause" } else { "resume" }, answer));
                }
                Item::SetDestination { name, settings } => {
                    answers.push(replied("set_destination", self.set_destination(&name, &settings)?));
                }
                Item::RemoveDestination { name, dead } => {
                    answers.push(replied("remove_destination", self.remove_destination(&name, dead)?));
                }
                Item::ChangeTenant { name, change } => {
                    let (operation, answer) = self.change_tenant(&name, change)?;
                    answers.push(replied(operation, answer));
                }
                Item::Again(failing) => answers.push(replied("again", self.try_at_once(&failing)?)),
                Item::Look { id, key } => answers.push(replied("look", self.look(key.as_deref(), &id)?)),
                Item::Letter(letter) => {
                    self.letters.push(letter);
                    self.counts.dead_letters += 1;
                }
                Item::Progress(progress) => self.store.put_input(&progress)?,
            }
        }
        if !puts.is_empty() {
            self.accept(puts, answers)?;
        }
        Ok(items)
    }

    /// Finds the destination that the message names, or refuses the message.
    fn addressed(&mut self, mut put: Incoming) -> Result<std::result::Result<Incoming, Answer>> {
        let is_refused = put.message.body.destination().is_none() && self.takes_named == TakesNamed::All;
        let share = if is_refused { None } else { self.share_of(&put.message.body)? };
        let Some(share) = share else { return Ok(Err(self.no_destination(&put))) };
        if share != 0 || put.message.body.tenant().is_some() {
            put.message.body = put.message.body.with(|extras| {
                extras.share = share;
                extras.tenant.take_if(|_| tenant_in(share) == 0);
            });
        }
        Ok(Ok(put))
    }

    /// The share of a message, by the names of its destination and its tenant. With one order for all (`--order global`) all
    /// tenants are one. `None`: the destination is not set.
    fn share_of(&mut self, body: &Body) -> Result<Option<i64>> {
        let destination = match body.destination().map(|name| self.store.destination(name)) {
            Some(None) => return Ok(None),
            Some(Some(it)) => it.share,
            None => 0,
        };
        let tenant = match body.tenant() {
            Some(name) if !self.dispatcher.lock().window.is_global() => self.store.tenant(name)?,
            _ => 0,
        };
        Ok(Some(share_of(destination, tenant)))
    }

    fn no_destination(&mut self, put: &Incoming) -> Answer {
        let reason = put.message.body.destination().map_or_else(|| NAMES_NO_DESTINATION.to_owned(), no_destination);
        self.put_letter(put.origin.as_ref(), (&reason, "the name of one that is set"), |_| record_of_incoming(put));
        Answer::Refused
    }

    /// A record of an input that is refused becomes a dead letter.
    fn put_letter(&mut self, at: Option<&Origin>, why: (&str, &str), record: impl FnOnce(&Origin) -> Vec<u8>) {
        let Some(origin) = at else { return };
        let (reason, allowed, record) = (why.0.to_owned(), why.1.to_owned(), record(origin));
        self.letters.push(Letter {
            source: origin.source.to_string(),
            line: origin.line as i64,
            reason,
            allowed,
            record,
        });
        self.counts.dead_letters += 1;
    }

    fn accept(&mut self, puts: Vec<Incoming>, answers: &mut Vec<Answer>) -> Result<()> {
        let first = answers.len();
        let accepted = self.store.accept(&puts, self.now_ms)?;
        let mut fresh = Vec::with_capacity(puts.len());
        let mut recurring = Vec::new(); // begun last: their occurrences come after all other messages
        let mut moved = Vec::new();
        for (put, accepted) in puts.into_iter().zip(accepted) {
            let recurs = put.message.body.recurrence().is_some();
            answers.push(match accepted {
                Accepted::New { seq, again, first, redelivered: may_have_arrived } => {
                    self.counts.accepted += 1;
                    if recurs {
                        recurring.push(Recurring::New(seq, put.message.body.clone()));
                    }
                    let partition = partition_of_incoming(&put);
                    if let Some(due_ms) = put.moved_to_ms {
                        moved.push(Reschedule {
                            id: put.message.id().into(),
                            key: put.message.key().map(Into::into),
                            due_ms,
                        });
                    }
                    let (share, redelivered) = (put.message.body.share(), put.redelivered || may_have_arrived);
                    let lane = put.lane.map(|number| lane_in(share, number));
                    let message = self.let_go_at_once(seq, put.message)?;
                    let size = message.size_in_memory() as u32; // with the data of the event
                    let row = WaitingRow { share, redelivered, ..WaitingRow::untried(message.due_ms, seq, lane, size) };
                    fresh.push((row, partition, Some(message.body.numbered(again, first))));
                    Answer::Accepted
                }
                Accepted::CancelledBefore(_) => {
                    self.counts.accepted += 1;
                    self.counts.cancelled += 1;
                    Answer::Cancelled
                }
                Accepted::Known(_) if recurs => {
                    recurring.push(Recurring::Known(answers.len(), put));
                    Answer::Unknown // until `recur_again` has run
                }
                Accepted::Known(known) => self.again(&put, &known),
            });
        }
        self.admit(&fresh, false)?;
        for it in moved {
            self.reschedule(&it)?; // in the same transaction, so nothing goes out at the old due time
        }
        for it in recurring {
            match it {
                Recurring::New(seq, body) => self.begin_recurring(seq, &body)?,
                Recurring::Known(place, put) => answers[place] = self.recur_again(put, false)?,
            }
        }
        for answer in &answers[first..] {
            replied("put", *answer);
        }
        Ok(())
    }

    /// Puts messages that are due soon into memory. All others wait in the store. `have_rows`: they have their rows there already.
    fn admit(&mut self, fresh: &[(WaitingRow, u8, Option<Body>)], have_rows: bool) -> Result<()> {
        let (mut held, mut gone) = (Vec::new(), Vec::new());
        for part in fresh.chunks(ADMIT) {
            let mut dispatcher = self.dispatcher.lock();
            for (row, partition, body) in part {
                let slot = if row.share == 0 || self.is_in_memory(&mut dispatcher, row) {
                    dispatcher.window.admit(*row, *partition, body.clone(), &mut gone)
                } else {
                    None
                };
                if let Some(slot) = slot {
                    self.admitted.push((slot, row.seq));
                    self.first_due_ms = Some(self.first_due_ms.map_or(row.due_ms, |first| first.min(row.due_ms)));
                    // A redelivered message has a row, which keeps the mark, so it is not near.
                    dispatcher.window.entry_mut(slot).is_near = !row.redelivered && !have_rows;
                    if body.is_none() {
                        self.without_body.push((slot, row.seq));
                    }
                }
                if !have_rows && (slot.is_none() || row.redelivered) {
                    held.push(*row);
                }
            }
        }
        held.extend(gone.iter().filter(|gone| gone.was_near).map(held_of));
        self.store.hold(&held)
    }

    /// Whether the message's named destination is in memory. It comes into memory with a message that is due within the
    /// horizon.
    fn is_in_memory(&self, dispatcher: &mut Dispatcher, row: &WaitingRow) -> bool {
        match dispatcher.due_within(self.horizon_ms) {
            Some(until_ms) if row.due_ms <= until_ms => {
                let share = dispatcher.open_share(row.share, || self.store.destination_numbered(row.share));
                dispatcher.look_if_held(share);
                if self.store.first_due_of(row.share) > until_ms {
                    dispatcher.window.none_is_due(share, until_ms); // nothing has to be read first
                }
                true
            }
            _ => dispatcher.window.share_numbered(row.share).is_some(),
        }
    }

    fn again(&mut self, put: &Incoming, known: &Known) -> Answer {
        if known.content != put.content {
            self.put_letter(put.origin.as_ref(), OTHER_CONTENT, |_| record_of_incoming(put));
            self.counts.conflicts += 1;
            return Answer::Conflict;
        }
        self.counts.duplicates += 1;
        if known.outcome == Some(Outcome::Cancelled) { Answer::Cancelled } else { Answer::Duplicate }
    }
}

/// A recurring message: newly accepted, or with a known name and the place of its answer.
enum Recurring {
    New(i64, Body),
    Known(usize, Incoming),
}

/// The row of a near message in memory.
pub(super) fn row_of(entry: &Entry, redelivered: bool) -> WaitingRow {
    let (share, lane) = entry.body.as_ref().map_or((0, None), lane_of_body);
    WaitingRow { share, redelivered, ..WaitingRow::untried(entry.due_ms, entry.seq, lane, entry.size) }
}

/// The row of a near message that leaves memory.
pub(super) fn held_of(gone: &Gone) -> WaitingRow {
    let (share, lane) = gone.body.as_ref().map_or((0, None), lane_of_body);
    WaitingRow { redelivered: gone.redelivered, share, ..WaitingRow::untried(gone.due_ms, gone.seq, lane, gone.size) }
}

/// The number of its share, and of its lane there.
pub(super) fn lane_of_body(body: &Body) -> (i64, Option<i64>) {
    let share = body.share();
    (share, lane_of(body.key()).map(|number| lane_in(share, number)))
}

fn answer_of(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Delivered => Answer::Delivered,
        Outcome::Cancelled | Outcome::Withdrawn => Answer::Cancelled,
        Outcome::Dead => Answer::Dead,
        Outcome::Expired => Answer::Expired,
        Outcome::Moved => Answer::Unknown, // its new number is forgotten later than this one
    }
}
