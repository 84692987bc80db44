//! A message as it is shown (D14), and the search for one by its name.
//!
//! The name is searched in the file alone: runs hold the names that left the writer's memory, and newer messages are read
//! one by one.

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::snapshot::{Snapshot, optional_text, text};
use crate::base::error::DeliveryError;
use crate::message::hashes::lane_of;
use crate::message::incoming::Digest;
use crate::message::recurrence::NEVER_MS;
use crate::store::names::runs;
use crate::store::open::waiting::is_waiting;
use crate::store::sql::{Result, cached, rows};
use crate::store::types::Outcome;

/// A message, open or with its outcome. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub seq: i64,
    /// Its key.
    pub key: Option<String>,
    /// Its id.
    pub id: String,
    /// When it is due. Of a recurring message: when its open occurrence is due; `None` after its end.
    pub due_ms: Option<i64>,
    /// `None`: it is open.
    pub outcome: Option<Outcome>,
    /// The time of its outcome.
    pub ended_ms: Option<i64>,
    /// How late it arrived.
    pub lateness_us: Option<i64>,
    /// How often it was sent.
    pub attempts: u32,
    /// The last error of an open message that failed; why a message was given up, as long as its dead letter is kept.
    pub last_error: Option<String>,
    /// The time of the next attempt.
    pub next_try_ms: Option<i64>,
    /// Of an open message: whether it may have arrived. Of another: whether it may have arrived before its outcome.
    pub may_have_arrived: bool,
    /// Of an open recurring message: its rule, as JSON.
    pub rule: Option<String>,
    /// The name of its destination, as long as it is open or its dead letter is kept.
    pub destination: Option<String>,
    /// The name of its tenant, as long as that of the destination.
    pub tenant: Option<String>,
    /// Of a remembered event: its name. `due_ms` is the end of its time then.
    pub event_name: Option<String>,
}

impl Seen {
    /// The bytes of its id and its key.
    pub(super) fn name_bytes(&self) -> usize {
        self.id.len() + self.key.as_ref().map_or(0, String::len)
    }
}

/// The columns of an open message for [`open`], from `OF_OPEN`.
pub(super) const OPEN: &str = "m.seq, m.key, m.id, m.due_ms, ifnull(a.attempts, 0), a.error, a.next_ms, \
     ifnull(w.redelivered, 0) OR ifnull(a.is_unanswered, 0), d.name, t.name";
/// A message with what is known of its attempts. A near message has no row in `waiting`.
pub(super) const OF_OPEN: &str = "FROM messages m LEFT JOIN attempts a ON a.seq = m.seq \
     LEFT JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq \
     LEFT JOIN bodies b ON b.seq = m.seq LEFT JOIN destinations d \
     ON d.share = iif(b.share >> 32, (b.share >> 32) - 1, b.share) \
     LEFT JOIN tenants t ON t.tenant = b.share & 4294967295 AND b.share >> 32";

/// An open message, of a row that begins with `OPEN`.
pub(super) fn open(row: &Row<'_>) -> rusqlite::Result<Seen> {
    Ok(Seen {
        seq: row.get(0)?,
        key: optional_text(row, 1)?,
        id: text(row, 2)?,
        due_ms: row.get(3)?,
        attempts: row.get(4)?,
        last_error: optional_text(row, 5)?,
        next_try_ms: row.get(6)?,
        may_have_arrived: row.get(7)?,
        destination: optional_text(row, 8)?,
        tenant: optional_text(row, 9)?,
        ..Seen::default()
    })
}

/// The columns for [`ended`], of `ledger l` and `messages m`.
pub(super) const ENDED: &str =
    "m.seq, m.key, m.id, m.due_ms, l.outcome, l.at_ms, l.lateness_us, l.attempts, l.redelivered";

/// A message with its outcome and without its reason, of a row that begins with `ENDED`.
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<Seen> {
    Ok(Seen {
        seq: row.get(0)?,
        key: optional_text(row, 1)?,
        id: text(row, 2)?,
        due_ms: row.get(3).map(Some)?.filter(|due_ms| *due_ms != NEVER_MS),
        outcome: row.get(4)?,
        ended_ms: row.get(5)?,
        lateness_us: row.get(6)?,
        attempts: row.get(7)?,
        may_have_arrived: row.get(8)?,
        ..Seen::default()
    })
}

/// Adds why this message was given up, its destination and its tenant, if the store has kept its dead letter.
pub(super) fn add_letter(db: &Connection, seen: &mut Seen) -> Result<()> {
    let letter = "SELECT reason, destination, tenant FROM dead_letters WHERE source = 'delivery' AND line = ?";
    let mut select = db.prepare_cached(letter)?;
    let parts = |row: &Row<'_>| Ok((text(row, 0)?, optional_text(row, 1)?, optional_text(row, 2)?));
    if let Some((reason, destination, tenant)) = select.query_row([seen.seq], parts).optional()? {
        (seen.last_error, seen.destination, seen.tenant) = (Some(reason), destination, tenant);
    }
    Ok(())
}

/// The number of the newest message with this name. The cost is O(runs) plus the messages accepted after the last run
/// was written, which are at most some hundred thousand rows.
pub(super) fn find(db: &Connection, key: Option<&str>, id: &str) -> Result<Option<i64>> {
    let name = Digest::of(key, id).number();
    let all: Vec<(i64, i64)> = rows(db, "SELECT n, last_seq FROM runs", [], |row| row.try_into())?;
    let last_seq = all.iter().map(|(_, last_seq)| *last_seq).max().unwrap_or(0);
    let newer = "SELECT seq FROM messages WHERE seq > ? AND name = ?";
    let mut seqs: Vec<i64> = rows(db, newer, [last_seq, name], |row| row.get(0))?;
    for (run, _) in all {
        runs::find(db, &runs::find_text(run), name, &mut seqs)?;
    }
    seqs.sort_unstable_by(|one, other| other.cmp(one));
    for seq in seqs {
        let text = "SELECT seq FROM messages WHERE seq = ? AND id = ? AND key IS ?";
        if let Some(seq) = cached(db, text)?.query_row(params![seq, id, key], |row| row.get(0)).optional()? {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

/// The rows of the ledger that are searched for an outcome: some 30 ms.
const SEARCHED: i64 = 300_000;

/// A message with its content, as long as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its state.
    pub seen: Seen,
    /// Of an open recurring message: the id of its open occurrence.
    pub next_id: Option<String>,
    /// Of an open message: since when its key is paused.
    pub key_paused_ms: Option<i64>,
    /// Its payload, and whether it is JSON.
    pub payload: Option<(Vec<u8>, bool)>,
    /// When it expires.
    pub expires_ms: Option<i64>,
    /// Its trace.
    pub traceparent: Option<String>,
    /// The names of the events that an open message waits for, or did, with spaces between them.
    pub until_event: Option<String>,
    /// Why it is due, if that has happened: `event` or `deadline`.
    pub cause: Option<String>,
    /// The event that let it go, as JSON.
    pub event: Option<String>,
}

impl Snapshot {
    /// The newest message with this name; `None`: it has not come, or is forgotten.
    ///
    /// The time and the lateness of an outcome come from a part of the ledger: for a delivered message, the 300,000 rows
    /// from its due time on; for other outcomes, the last 300,000 rows. If the outcome is not there, they are missing.
    pub fn show(&self, key: Option<&str>, id: &str) -> Result<Option<Shown>, DeliveryError> {
        self.ask(|db| find(db, key, id)?.map(|seq| show(db, seq)).transpose())
    }
}

fn show(db: &Connection, seq: i64) -> Result<Shown> {
    let query = format!(
        "SELECT {OPEN}, m.outcome, m.due_ms, CAST(b.payload AS BLOB), typeof(b.payload) = 'text', b.expires_ms, \
         b.traceparent, u.names, iif(u.event > 0, 'event', iif(u.event = 0, 'deadline', NULL)), e.data {OF_OPEN} \
         LEFT JOIN waits u ON u.seq = m.seq LEFT JOIN events e ON e.n = u.event WHERE m.seq = ?"
    );
    let (mut shown, outcome, due_ms) = db.query_row(&query, [seq], |row| {
        let (payload, is_json): (Option<Vec<u8>>, bool) = (row.get(12)?, row.get(13)?);
        let shown = Shown {
            seen: open(row)?,
            next_id: None,
            key_paused_ms: None,
            payload: payload.map(|payload| (payload, is_json)),
            expires_ms: row.get(14)?,
            traceparent: optional_text(row, 15)?,
            until_event: optional_text(row, 16)?,
            cause: optional_text(row, 17)?,
            event: optional_text(row, 18)?,
        };
        Ok((shown, row.get::<_, Option<Outcome>>(10)?, row.get::<_, i64>(11)?))
    })?;
    let is_held = is_waiting(db, (due_ms, seq))?;
    let near = "SELECT 1 FROM near_messages WHERE due_ms = ? AND seq = ?";
    if !is_held && !db.prepare(near)?.exists([due_ms, seq])? {
        shown.seen = with_outcome(db, shown.seen, outcome.unwrap_or(Outcome::Delivered))?;
        return Ok(shown);
    }
    if due_ms == NEVER_MS {
        let next = "SELECT b.recurrence, m.due_ms, m.id FROM bodies b JOIN occurrences o ON o.of_seq = b.seq \
                    JOIN messages m ON m.seq = o.seq WHERE b.seq = ?";
        (shown.seen.rule, shown.seen.due_ms, shown.next_id) =
            db.query_row(next, [seq], |row| Ok((optional_text(row, 0)?, row.get(1)?, optional_text(row, 2)?)))?;
    }
    if let Some(key) = &shown.seen.key {
        let paused = "SELECT since_ms FROM paused_keys WHERE lane = ?";
        shown.key_paused_ms = db.query_row(paused, [lane_of(key)], |row| row.get(0)).optional()?;
    }
    Ok(shown)
}

/// The message with this outcome, and with what the searched part of the ledger says of it.
fn with_outcome(db: &Connection, open: Seen, outcome: Outcome) -> Result<Seen> {
    let (order, first_n) = match outcome {
        Outcome::Delivered => ("", row_at(db, open.due_ms.unwrap_or(i64::MIN))?),
        _ => ("DESC", i64::MIN),
    };
    let query = format!(
        "SELECT {ENDED} FROM (SELECT * FROM ledger WHERE n >= ? ORDER BY n {order} LIMIT ?) AS l \
         JOIN messages m ON m.seq = l.seq WHERE l.seq = ? LIMIT 1"
    );
    let found = db.query_row(&query, params![first_n, SEARCHED, open.seq], ended).optional()?;
    let mut seen = found.unwrap_or(Seen { outcome: Some(outcome), attempts: 0, may_have_arrived: false, ..open });
    seen.due_ms = seen.due_ms.filter(|due_ms| *due_ms != NEVER_MS);
    if outcome.is_dead() && seen.ended_ms.is_some() {
        add_letter(db, &mut seen)?;
    }
    Ok(seen)
}

/// The number of the first row of the ledger that was written at that time or later, as far as its times ascend.
fn row_at(db: &Connection, at_ms: i64) -> Result<i64> {
    let ends = "SELECT ifnull(min(n), 0), ifnull(max(n), 0) FROM ledger";
    let (mut low, mut high): (i64, i64) = db.query_row(ends, [], |row| row.try_into())?;
    let mut select = db.prepare("SELECT at_ms FROM ledger WHERE n >= ? ORDER BY n LIMIT 1")?;
    while low < high {
        let middle = low + (high - low) / 2;
        let row_ms: i64 = select.query_row([middle], |row| row.get(0))?;
        if row_ms < at_ms {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
