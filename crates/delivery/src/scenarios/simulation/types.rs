//! The model's knowledge of messages, tickets and sends, and their names.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::events::{self, Cause};
use super::tenants::tenant;
use crate::base::error::DeliveryError;
use crate::group::items::{Answer, Failing, Item, Receipt, TenantChange};
use crate::message::incoming::Incoming;
use crate::message::shares::{destination_in, tenant_in};
use crate::message::{Body, Cancel, Extras, Message, Reschedule};
use crate::sinks::{Delivery, Sink, Verdicts};
use crate::store::{ActionKind, Filter, Letter, Outcome, PartKind};

pub(super) const MAX_ATTEMPTS: u32 = 3;

/// The key and id of a message.
pub(super) type Name = (Option<u8>, u8);
/// A message: its name, and the number of its acceptance.
pub(super) type Key = (Name, u64);

/// A message on disk.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) order: u64,
    pub(super) due_ms: i64,
    /// Its due time when it was put.
    pub(super) first_due_ms: i64,
    /// Its due time before it was moved.
    pub(super) unmoved_ms: i64,
    pub(super) was_moved: bool,
    pub(super) payload: u8,
    pub(super) cause: Cause,
    pub(super) expires_ms: Option<i64>,
    /// Its expiry when it was put.
    pub(super) first_expires_ms: Option<i64>,
    /// The latest due time, however often the message is put off.
    pub(super) latest_ms: Option<i64>,
    pub(super) end: Option<Outcome>,
    /// The greatest possible age of the store when this was committed.
    pub(super) end_at_ms: i64,
    /// The moment of its answer. Since then it is on the timer.
    pub(super) placed: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Asked {
    Put {
        name: Name,
        due_ms: i64,
        payload: u8,
        expires_ms: Option<i64>,
    },
    Replace {
        name: Name,
        due_ms: i64,
        payload: u8,
        at_latest_ms: Option<i64>,
    },
    Requeue(Name),
    /// Of a message with a key, the key.
    Again(Name),
    Cancel(Name),
    Reschedule {
        name: Name,
        due_ms: i64,
    },
    /// Cancels all waiting messages of this key; `None`: of all keys.
    CancelMany(Option<u8>),
    Pause(bool),
    PauseKey(u8, bool),
    Look(Name),
    Tenant(u8, TenantChange),
    Event {
        key: u8,
        id: u32,
        name: usize,
        remember_ms: Option<i64>,
    },
    Forget {
        key: u8,
        id: u32,
    },
    PauseTenant(u8, bool),
    /// A record that could not be read.
    Bad(i64),
}

/// Sends of a message that were not accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// Made, and on disk or in memory; and made before a crash.
    pub(super) made: u32,
    pub(super) made_maybe: u32,
    /// Attempts that count towards the limit.
    pub(super) counted: u32,
    /// Attempts that may count. The model does not know it.
    pub(super) counted_maybe: u32,
}

/// The life of a message since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) is_in_flight: bool,
    pub(super) is_retrying: bool,
    /// Not on disk yet.
    pub(super) end: Option<Outcome>,
    /// The moment when it left its lane. Messages that are placed later do not go before it.
    pub(super) left_lane: Option<u64>,
}

pub(super) struct Ticket {
    pub(super) asked: Vec<Asked>,
    pub(super) receipt: Receipt,
    pub(super) expected: Vec<Vec<Answer>>,
    pub(super) accepted: Vec<Key>,
    /// How many messages each event lets go.
    pub(super) let_go: Vec<RangeInclusive<u32>>,
}

pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) messages: Vec<Key>,
    pub(super) seqs: Vec<i64>,
    /// The tenant of each, also after the send was cut off; 0: none.
    pub(super) tenants: Vec<u8>,
    /// How old the world was.
    pub(super) began_us: u64,
    /// Whether the destination was down just before.
    pub(super) was_down: bool,
}

/// The source of a dead letter: its input, or the number of a message.
pub(super) type Source = (String, i64);

/// Dead letters that the observer got, until the store knows it.
#[derive(Default)]
pub(super) struct Telling {
    /// On disk, but the observer does not have them.
    pub(super) owed: BTreeSet<Source>,
    /// The observer has them, but has not answered.
    pub(super) in_hand: Option<(i64, Vec<Source>)>,
    pub(super) answered: Vec<Source>,
    pub(super) in_group: Vec<Source>,
    /// The store knows that the observer has them.
    pub(super) over: BTreeSet<Source>,
}

pub(super) struct Random(pub(super) fastrand::Rng);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(0..end)
    }
}

/// The destination's report on its messages: the end of its log, from a position on.
pub(super) struct Destination {
    pub(super) log: Option<Vec<i64>>,
    pub(super) asked: Vec<i64>,
    pub(super) arrived: Vec<i64>,
}

impl Sink for Destination {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        unreachable!("the world sends")
    }

    fn position(&self) -> Option<String> {
        self.log.as_ref().map(|log| log.len().to_string())
    }

    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        self.asked.extend(suspects.iter().map(|it| it.seq));
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let from: usize = position.map_or(0, |text| text.parse().unwrap());
        let arrived: Vec<i64> = suspects.iter().map(|it| it.seq).filter(|seq| log[from..].contains(seq)).collect();
        self.arrived.extend(&arrived);
        Ok(arrived)
    }
}

pub(super) fn destination(share: i64) -> String {
    format!("d{share}")
}

/// What waits after a failed send: a key at a destination, a message without a key, or all.
pub(super) type WaitsAs = (Option<(u8, i64)>, Option<Key>);

/// The name in a request, if there is one.
pub(super) fn name_asked(asked: &Asked) -> Option<Name> {
    match asked {
        Asked::Put { name, .. }
        | Asked::Replace { name, .. }
        | Asked::Reschedule { name, .. }
        | Asked::Requeue(name)
        | Asked::Again(name)
        | Asked::Cancel(name)
        | Asked::Look(name) => Some(*name),
        Asked::CancelMany(_)
        | Asked::Pause(_)
        | Asked::PauseKey(..)
        | Asked::Tenant(..)
        | Asked::PauseTenant(..)
        | Asked::Event { .. }
        | Asked::Forget { .. }
        | Asked::Bad(_) => None,
    }
}

pub(super) fn text(name: Name) -> (Option<String>, String) {
    (name.0.map(|key| format!("k{key}")), format!("i{}", name.1))
}

pub(super) fn name_of(body: &Body) -> Name {
    (body.key().map(|key| key[1..].parse().unwrap()), body.id()[1..].parse().unwrap())
}

pub(super) fn payload(number: u8) -> Vec<u8> {
    vec![b'1' + number % 5; 1 + usize::from(number / 5) * 150]
}

fn incoming(name: Name, due_ms: i64, number: u8, expires_ms: Option<i64>, share: i64) -> Incoming {
    let (key, id) = text(name);
    let body = Body::new(key.as_deref(), &id, &payload(number), true);
    let destination = (destination_in(share) > 0).then(|| destination(destination_in(share)).into());
    let tenant = (tenant_in(share) > 0).then(|| tenant(tenant_in(share) as u8).into());
    let until = events::until(name);
    let body = body.with_extras(Extras { expires_ms, destination, tenant, until, ..Extras::default() });
    Incoming::of(Message { body, due_ms, delay_ms: None })
}

pub(super) fn item(asked: &Asked, share: i64) -> Item {
    match asked {
        Asked::Put { name, due_ms, payload, expires_ms } => {
            Item::Put(incoming(*name, *due_ms, *payload, *expires_ms, share))
        }
        Asked::Replace { name, due_ms, payload, at_latest_ms } => {
            Item::Replace { put: incoming(*name, *due_ms, *payload, None, share), at_latest_ms: *at_latest_ms }
        }
        Asked::Requeue(name) => {
            let (key, id) = text(*name);
            Item::Requeue { id, key }
        }
        Asked::Again(name) => {
            let (key, id) = text(*name);
            Item::Again(key.map_or(Failing::Message(id), Failing::Key))
        }
        Asked::Cancel(name) => {
            let (key, id) = text(*name);
            Item::Cancel(Cancel { id, key, keep_days: 0 })
        }
        Asked::Reschedule { name, due_ms } => {
            let (key, id) = text(*name);
            Item::Reschedule(Reschedule { id, key, due_ms: *due_ms })
        }
        Asked::CancelMany(key) => Item::Act {
            id: fastrand::u64(..).to_string(),
            kind: ActionKind::Cancel,
            filter: Filter { key: key.map(|key| format!("k{key}")), ..Filter::default() },
        },
        Asked::Pause(is_paused) => Item::pause(None, *is_paused),
        Asked::PauseKey(key, is_paused) => Item::pause(Some(format!("k{key}")), *is_paused),
        Asked::Look(name) => {
            let (key, id) = text(*name);
            Item::Look { id, key }
        }
        Asked::PauseTenant(number, is_paused) => Item::pause_part(PartKind::Tenant, &tenant(*number), *is_paused),
        Asked::Tenant(number, change) => Item::ChangeTenant { name: tenant(*number), change: change.clone() },
        Asked::Event { key, id, name, remember_ms } => {
            Item::Event { event: events::event_of(*key, *name, *id, *remember_ms), origin: None }
        }
        Asked::Forget { key, id } => Item::Forget { key: format!("k{key}"), id: id.to_string() },
        Asked::Bad(line) => Item::Letter(Letter {
            source: "input".to_owned(),
            line: *line,
            reason: "it is bad".to_owned(),
            allowed: "a good one".to_owned(),
            record: b"{}".to_vec(),
        }),
    }
}

pub(super) fn again(last: &Stored, due_ms: i64, payload: u8, expires_ms: Option<i64>) -> Answer {
    if (last.first_due_ms, last.payload, last.first_expires_ms) != (due_ms, payload, expires_ms) {
        Answer::Conflict
    } else if last.end == Some(Outcome::Cancelled) {
        Answer::Cancelled
    } else {
        Answer::Duplicate
    }
}

pub(super) fn answer_of(end: Outcome) -> Answer {
    match end {
        Outcome::Delivered => Answer::Delivered,
        Outcome::Cancelled => Answer::Cancelled,
        Outcome::Dead => Answer::Dead,
        Outcome::Expired => Answer::Expired,
        Outcome::Moved | Outcome::Withdrawn => unreachable!("it goes on, and nothing recurs"),
    }
}

pub(super) fn shown(delivery: &Delivery) -> String {
    let name = name_of(&delivery.body);
    let again = if delivery.redelivered { " again" } else { "" };
    format!("{name:?} seq {} due {} attempt {}{again}", delivery.seq, delivery.due_ms, delivery.attempt)
}
