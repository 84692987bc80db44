//! Checks that each message is in exactly one place, and that all tables agree on it. One walk reads the tables in
//! the order of numbers.

use rusqlite::{Connection, Row, Rows};

use super::problems::Problems;
use crate::message::incoming::{Digest, lane_in, lane_of};
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::store::Outcome;
use crate::store::open::near::Floor;
use crate::store::sql::Result;

/// How far the parts of the store have come, by their own notes.
pub(super) struct Ends {
    pub(super) floor: Floor,
    pub(super) forgotten_n: i64,
    pub(super) collected_n: i64,
}

const DELIVERED: i64 = Outcome::Delivered as i64;

struct Message {
    name: i64,
    digest: Digest,
    pub due_ms: i64,
    lane: Option<i64>,
    partition: u8,
    content_len: i64,
    outcome: Option<i64>,
}

struct Waits {
    due_ms: i64,
    /// The number of its key, as its lane has it.
    key: Option<i64>,
}

struct Ended {
    n: i64,
    outcome: i64,
}

/// All rows of one message.
struct Found {
    message: Message,
    is_json: Option<bool>,
    /// Whether its body says that it waits for an event.
    has_until: Option<bool>,
    /// The number of its key, as `waits` has it.
    until: Option<i64>,
    waits: Option<Waits>,
    ended: Option<Ended>,
    has_attempts: bool,
    is_occurrence: bool,
    has_occurrence: bool,
    /// The partition noted for a message that got another due time.
    moved_in: Option<u8>,
}

/// The rows of one table, in ascending order of the number of their message.
struct Cursor<'a, T> {
    rows: Rows<'a>,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
    next: Option<(i64, T)>,
}

impl<'a, T> Cursor<'a, T> {
    fn new(rows: Rows<'a>, read: fn(&Row<'_>) -> rusqlite::Result<T>) -> Result<Self> {
        let mut cursor = Self { rows, read, next: None };
        cursor.step()?;
        Ok(cursor)
    }

    fn step(&mut self) -> Result<()> {
        self.next = match self.rows.next()? {
            Some(row) => Some((row.get(0)?, (self.read)(row)?)),
            None => None,
        };
        Ok(())
    }

    fn seq(&self) -> Option<i64> {
        self.next.as_ref().map(|(seq, _)| *seq)
    }

    /// Takes the row with this number. A second row with the same number is a problem.
    fn take(&mut self, seq: i64, twice: &'static str, problems: &mut Problems) -> Result<Option<T>> {
        let mut found = None;
        while self.seq() == Some(seq) {
            problems.add_if(found.is_some(), twice, seq);
            found = self.next.take().map(|(_, row)| row);
            self.step()?;
        }
        Ok(found)
    }
}

/// Looks at all messages. Returns the number of messages, and the number of open ones.
pub(super) fn look(
    db: &Connection,
    ends: &Ends,
    number: fn(Digest) -> i64,
    problems: &mut Problems,
) -> Result<(u64, u64)> {
    let mut messages =
        db.prepare("SELECT seq, name, due_ms, key, id, length(content), outcome FROM messages ORDER BY seq")?;
    let mut bodies =
        db.prepare("SELECT seq, typeof(payload) = 'text', ifnull(recurrence = '', 0) FROM bodies ORDER BY seq")?;
    let mut waiting = db.prepare("SELECT seq, due_ms, lane, ifnull(share, 0) FROM waiting ORDER BY seq")?;
    let mut ledger = db.prepare("SELECT seq, n, outcome FROM ledger ORDER BY seq")?;
    let mut attempts = db.prepare("SELECT seq FROM attempts ORDER BY seq")?;
    let mut occurrences = db.prepare("SELECT seq FROM occurrences ORDER BY seq")?;
    let mut with_one = db.prepare("SELECT of_seq FROM occurrences ORDER BY of_seq")?;
    let mut moved = db.prepare("SELECT seq, partition FROM moved ORDER BY seq")?;
    let mut until = db.prepare("SELECT seq, key FROM waits ORDER BY seq")?;
    let mut messages = Cursor::new(messages.query([])?, message)?;
    let mut bodies = Cursor::new(bodies.query([])?, |row| Ok((row.get::<_, bool>(1)?, row.get::<_, bool>(2)?)))?;
    let mut waiting = Cursor::new(waiting.query([])?, |row| {
        let share = row.get(3)?;
        Ok(Waits { due_ms: row.get(1)?, key: row.get::<_, Option<i64>>(2)?.map(|lane| lane_in(share, lane)) })
    })?;
    let mut ledger = Cursor::new(ledger.query([])?, |row| Ok(Ended { n: row.get(1)?, outcome: row.get(2)? }))?;
    let mut attempts = Cursor::new(attempts.query([])?, |_| Ok(()))?;
    let mut occurrences = Cursor::new(occurrences.query([])?, |_| Ok(()))?;
    let mut with_one = Cursor::new(with_one.query([])?, |_| Ok(()))?;
    let mut moved = Cursor::new(moved.query([])?, |row| row.get::<_, u8>(1))?;
    let mut until = Cursor::new(until.query([])?, |row| row.get::<_, i64>(1))?;
    let (mut count, mut open) = (0, 0);
    loop {
        let next = [messages.seq(), bodies.seq(), waiting.seq(), ledger.seq(), attempts.seq()];
        let of_few = [occurrences.seq(), with_one.seq(), moved.seq(), until.seq()];
        let Some(seq) = next.into_iter().chain(of_few).flatten().min() else { return Ok((count, open)) };
        let message = messages.take(seq, "messages with one number", problems)?;
        let body = bodies.take(seq, "payloads with one number", problems)?;
        let (is_json, has_until) = body.unzip();
        let waits = waiting.take(seq, "messages that wait twice", problems)?;
        let ended = ledger.take(seq, "messages with two outcomes", problems)?;
        let has_attempts = attempts.take(seq, "attempts with one number", problems)?.is_some();
        let is_occurrence = occurrences.take(seq, "occurrences with one number", problems)?.is_some();
        let has_occurrence = with_one.take(seq, "recurring messages with two occurrences", problems)?.is_some();
        let moved_in = moved.take(seq, "first due times with one number", problems)?;
        let until = until.take(seq, "messages that wait for events twice", problems)?;
        let Some(message) = message else {
            problems.add_if(until.is_some(), "waits for events without a message", seq);
            let is_forgotten = ended.as_ref().is_some_and(|ended| ended.n <= ends.forgotten_n);
            problems.add_if(is_json.is_some(), "payloads without a message", seq);
            problems.add_if(waits.is_some(), "waiting rows without a message", seq);
            problems.add_if(has_attempts, "attempts without a message", seq);
            problems.add_if(is_occurrence || has_occurrence, "occurrences without a message", seq);
            problems.add_if(moved_in.is_some(), "first due times without a message", seq);
            problems.add_if(ended.is_some() && !is_forgotten, "outcomes without a message", seq);
            continue;
        };
        count += 1;
        let found = Found {
            message,
            is_json,
            has_until,
            until,
            waits,
            ended,
            has_attempts,
            is_occurrence,
            has_occurrence,
            moved_in,
        };
        open += u64::from(look_at(seq, &found, ends, number, problems));
    }
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    let text = |bytes| String::from_utf8_lossy(bytes); // text that is damaged has another digest
    let key = row.get_ref(3)?.as_bytes_or_null()?.map(text);
    let id = text(row.get_ref(4)?.as_bytes()?);
    Ok(Message {
        name: row.get(1)?,
        digest: Digest::of(key.as_deref(), &id),
        due_ms: row.get(2)?,
        lane: lane_of(key.as_deref()),
        partition: partition_of_name(key.as_deref(), &id),
        content_len: row.get(5)?,
        outcome: row.get(6)?,
    })
}

/// Checks one message. Returns whether it is open.
fn look_at(seq: i64, found: &Found, ends: &Ends, number: fn(Digest) -> i64, problems: &mut Problems) -> bool {
    let Found { message, is_json, waits, ended, has_attempts, is_occurrence, has_occurrence, moved_in, .. } = found;
    let mut tell = |is_so, what| problems.add_if(is_so, what, seq);
    let is_past_floor = seq >= ends.floor.seq;
    let is_open = waits.is_some() || (ended.is_none() && is_past_floor);
    tell(message.name != number(message.digest), "messages whose digest is not that of their key and id");
    tell(waits.is_some() && ended.is_some(), "messages that wait, and have an outcome");
    tell(!is_open && ended.is_none(), "messages that neither wait nor have an outcome");
    if let Some(waits) = waits {
        tell(waits.due_ms != message.due_ms, "messages that wait for another time than they are due at");
        tell(waits.key != message.lane, "messages that wait in the lane of another key");
    }
    let outcome = ended.as_ref().map(|ended| ended.outcome).filter(|outcome| *outcome != DELIVERED);
    tell(message.outcome != outcome, "messages whose outcome is not that of the ledger");
    if let Some(ended) = ended {
        let is_delivered_again = is_past_floor && waits.is_none() && ended.n <= ends.floor.n && is_json.is_some();
        tell(is_delivered_again, "messages with an outcome that would be delivered again");
        let is_left = !is_past_floor && ended.n <= ends.collected_n && is_json.is_some();
        tell(is_left, "payloads that are not needed any more, and are never deleted");
    }
    tell(is_open && is_json.is_none(), "messages that wait without a payload");
    tell(is_json.is_some_and(|is_json| message.content_len != if is_json { 15 } else { 16 }), CONTENT);
    tell(*has_attempts && !is_open, "attempts of messages that do not wait");
    tell(*is_occurrence && !is_open, "occurrences that do not wait");
    tell(moved_in.is_some() && !is_open, "first due times of messages that do not wait");
    tell(moved_in.is_some_and(|it| it != message.partition), "first due times in the partition of another name");
    let is_as_told = found.has_until.is_none_or(|it| it == found.until.is_some());
    tell(is_open && !is_as_told, "messages whose waits for events are not those of their bodies");
    tell(found.until.is_some() && !is_open, "waits for events of messages that do not wait");
    tell(found.until.is_some_and(|key| message.lane != Some(key)), "messages that wait for events of another key");
    let recurs = is_open && message.due_ms == NEVER_MS;
    tell(recurs && !has_occurrence, "recurring messages without an occurrence");
    tell(*has_occurrence && !recurs, "occurrences of messages that do not recur");
    is_open
}

const CONTENT: &str = "messages whose content's digest is not of the kind of their payload";
