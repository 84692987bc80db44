//! Messages that wait for an event, and events (rule D22).
//!
//! - `waits` has a row for each open message with `until_event`. It goes with the outcome of the message.
//! - `events` has a row for each known event, for as long as names are kept. Its data is there while a message that it let go
//!   is open, and while it is remembered.
//! - A row of `events` without a name has the data of a dead letter that is tried anew.

use std::cell::RefCell;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use crate::message::events::{Event, MOST_WAITING};
use crate::message::hashes::{Content, lane_of};
use crate::message::incoming::Digest;
use crate::message::until::{Cause, Until};
use crate::store::sql::{Broken, Result, cached, execute, rows};
use crate::store::types::Events;
use crate::store::{Done, Position, Store, WaitingRow};

/// How many old rows a step of the upkeep looks at.
const STEP: i64 = 200;

pub(in crate::store) fn load(db: &Connection) -> Result<Events> {
    let has = |text: &str| -> rusqlite::Result<bool> { db.prepare(text)?.exists([]) };
    let have_waits = has("SELECT 1 FROM waits")?;
    let have_events = has("SELECT 1 FROM events")?;
    Ok(Events { have_waits, have_events, looked_through: 0, last_data: RefCell::default() })
}

/// An event that was accepted before.
pub(crate) struct KnownEvent {
    pub(crate) content: Content,
    pub(crate) let_go: u32,
}

impl Store {
    /// Whether no more messages of this key may wait for events, if so many come beside those in the store.
    pub(crate) fn is_full_of_waits(&self, key: &str, beside: usize) -> Result<bool> {
        let Some(others) = (MOST_WAITING - 1).checked_sub(beside) else { return Ok(true) };
        let text = "SELECT 1 FROM waits WHERE key = ? AND event IS NULL LIMIT 1 OFFSET ?";
        Ok(self.events.have_waits && cached(&self.db, text)?.exists([lane_of(key), others as i64])?)
    }

    /// Whether the message waits for an event.
    pub(crate) fn waits(&self, seq: i64) -> Result<bool> {
        Ok(cached(&self.db, "SELECT 1 FROM waits WHERE seq = ? AND event IS NULL")?.exists([seq])?)
    }

    /// An event comes too late for this message from now on.
    pub(crate) fn waits_no_more(&self, seq: i64) -> Result<()> {
        execute(&self.db, "UPDATE waits SET event = 0 WHERE seq = ? AND event IS NULL", [seq]).map(drop)
    }

    /// The messages of the key that wait for this event, and are due after `now_ms`.
    pub(crate) fn waiting_for(&self, key: &str, event: &str, now_ms: i64) -> Result<Vec<Position>> {
        let mut found = Vec::new();
        if !self.events.have_waits {
            return Ok(found);
        }
        let text = "SELECT w.names, m.due_ms, m.seq FROM waits w JOIN messages m ON m.seq = w.seq \
                    WHERE w.key = ? AND w.event IS NULL AND m.due_ms > ? AND m.key = ?";
        let mut select = cached(&self.db, text)?;
        let mut rows = select.query((lane_of(key), now_ms, key))?;
        while let Some(row) = rows.next()? {
            if Until::has(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?, event) {
                found.push((row.get(1)?, row.get(2)?));
            }
        }
        Ok(found)
    }

    /// The event of this name, if it is known.
    pub(crate) fn known_event(&self, key: &str, id: &str) -> Result<Option<KnownEvent>> {
        if !self.events.have_events {
            return Ok(None);
        }
        let name = (self.number)(Digest::of(Some(key), id));
        let text = "SELECT content, let_go FROM events WHERE name = ? AND key = ? AND id = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((Content::from_bytes(row.get_ref(0)?.as_blob()?), row.get(1)?));
        let Some((content, let_go)) = cached(&self.db, text)?.query_row((name, key, id), row).optional()? else {
            return Ok(None);
        };
        let content = content.ok_or_else(|| Broken::Contradiction(format!("the event {id} has no digest")))?;
        Ok(Some(KnownEvent { content, let_go }))
    }

    /// Notes the event. Returns its number.
    pub(crate) fn put_event(&mut self, event: &Event, data: &Arc<str>) -> Result<i64> {
        let at_ms = self.retention.now_ms();
        let until_ms = event.remember_ms.map(|ms| at_ms.saturating_add(ms.min(self.retention.keep_ms())));
        let name = (self.number)(Digest::of(Some(&event.key), &event.id));
        let text = "INSERT INTO events (name, key, id, event, content, at_ms, let_go, open, until_ms, data) \
                    VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, ?)";
        let content = event.content();
        execute(
            &self.db,
            text,
            params![name, event.key, event.id, event.event, content.as_bytes(), at_ms, until_ms, data],
        )?;
        Ok(self.number_of_new(data))
    }

    fn number_of_new(&mut self, data: &Arc<str>) -> i64 {
        let n = self.db.last_insert_rowid(); // perhaps that of an event that was forgotten
        self.events.have_events = true;
        self.events.last_data.replace(Some((n, Arc::downgrade(data))));
        self.events.looked_through = self.events.looked_through.min(n - 1);
        n
    }

    /// Notes how many messages the event has let go, all of which are open. Its data stays only if it is of use.
    pub(crate) fn has_let_go(&self, n: i64, count: u32) -> Result<()> {
        execute(&self.db, "UPDATE events SET let_go = ?2, open = ?2 WHERE n = ?1", (n, count))?;
        self.drop_data(n)
    }

    /// Notes the data of a dead letter that is tried anew. Returns its number.
    pub(crate) fn put_data(&mut self, key: &str, data: &Arc<str>) -> Result<i64> {
        let text = "INSERT INTO events (key, id, event, at_ms, let_go, open, data) VALUES (?, '', '', ?, 0, 0, ?)";
        execute(&self.db, text, params![key, self.retention.now_ms(), data])?;
        Ok(self.number_of_new(data))
    }

    /// The newest event that is remembered for this key, and that a message with these names waits for.
    pub(crate) fn remembered(&self, key: &str, names: &str) -> Result<Option<(i64, Arc<str>)>> {
        if !self.events.have_events {
            return Ok(None);
        }
        let now_ms = self.retention.now_ms();
        let text = "SELECT n FROM events WHERE key = ? AND event = ? AND until_ms > ? ORDER BY n DESC LIMIT 1";
        let mut select = cached(&self.db, text)?;
        let mut newest = None;
        for name in names.split(' ') {
            newest = newest.max(select.query_row((key, name, now_ms), |row| row.get(0)).optional()?);
        }
        newest.map(|n| Ok((n, self.data_of(n)?))).transpose()
    }

    /// The data of an event. Messages that one event let go are often read together, and share it.
    fn data_of(&self, n: i64) -> rusqlite::Result<Arc<str>> {
        let mut last = self.events.last_data.borrow_mut();
        if let Some(data) = last.as_ref().filter(|(of, _)| *of == n).and_then(|(_, data)| data.upgrade()) {
            return Ok(data);
        }
        let mut select = self.db.prepare_cached("SELECT data FROM events WHERE n = ?")?;
        let data: Arc<str> = select.query_row([n], |row| Ok(row.get_ref(0)?.as_str()?.into()))?;
        *last = Some((n, Arc::downgrade(&data)));
        Ok(data)
    }

    /// Forgets that the event is remembered. Returns whether it was.
    pub(crate) fn forget_event(&self, key: &str, id: &str) -> Result<bool> {
        let name = (self.number)(Digest::of(Some(key), id));
        let text =
            "UPDATE events SET until_ms = NULL WHERE name = ? AND key = ? AND id = ? AND until_ms > ? RETURNING n";
        let values = (name, key, id, self.retention.now_ms());
        let n = cached(&self.db, text)?.returned(values, |row| row.get(0))?.pop();
        n.map_or(Ok(false), |n| self.drop_data(n).map(|()| true))
    }

    /// The row of the message in `waiting`, if it has one and was certainly not sent.
    pub(crate) fn untried(&self, (due_ms, seq): Position) -> Result<Option<WaitingRow>> {
        if self.attempts(seq)?.is_some() {
            return Ok(None);
        }
        let text = "SELECT lane, size, ifnull(share, 0) FROM waiting WHERE due_ms = ? AND seq = ? AND redelivered = 0";
        let row = |row: &rusqlite::Row<'_>| {
            Ok(WaitingRow { share: row.get(2)?, ..WaitingRow::untried(due_ms, seq, row.get(0)?, row.get(1)?) })
        };
        Ok(cached(&self.db, text)?.query_row([due_ms, seq], row).optional()?)
    }

    /// The event lets the message at this position go, which has this row now.
    pub(crate) fn let_go(&mut self, (due_ms, seq): Position, n: i64, row: &WaitingRow) -> Result<()> {
        self.due_by_event(seq, n, row.due_ms)?;
        if !self.near.hold(seq) {
            execute(&self.db, "DELETE FROM waiting WHERE due_ms = ? AND seq = ?", [due_ms, seq])?;
        }
        self.write_waiting(vec![row])
    }

    /// Notes that an event that is remembered lets a new message go, which is due at this time.
    pub(crate) fn note_let_go(&self, seq: i64, n: i64, due_ms: i64) -> Result<()> {
        execute(&self.db, "UPDATE events SET open = open + 1 WHERE n = ?", [n])?;
        self.due_by_event(seq, n, due_ms)
    }

    fn due_by_event(&self, seq: i64, n: i64, due_ms: i64) -> Result<()> {
        execute(&self.db, "UPDATE waits SET event = ?2 WHERE seq = ?1", (seq, n))?;
        execute(&self.db, "UPDATE messages SET due_ms = ?2 WHERE seq = ?1", (seq, due_ms)).map(drop)
    }

    /// Forgets what these messages waited for: they have their outcome.
    pub(in crate::store) fn forget_waits(&mut self, done: &[Done]) -> Result<()> {
        if !self.events.have_waits {
            return Ok(());
        }
        let mut delete = cached(&self.db, "DELETE FROM waits WHERE seq = ? RETURNING ifnull(event, 0)")?;
        let mut events: Vec<i64> = Vec::new();
        for one in done {
            events.extend(delete.returned([one.seq], |row| row.get::<_, i64>(0))?);
        }
        events.retain(|n| *n > 0);
        events.sort_unstable();
        for same in events.chunk_by(i64::eq) {
            execute(&self.db, "UPDATE events SET open = open - ?2 WHERE n = ?1", (same[0], same.len() as i64))?;
            self.drop_data(same[0])?;
        }
        Ok(())
    }

    fn drop_data(&self, n: i64) -> Result<()> {
        let is_used = "n = ? AND open = 0 AND until_ms IS NULL";
        execute(
            &self.db,
            &format!("DELETE FROM events WHERE {is_used} AND (name IS NULL OR at_ms < ?)"),
            [n, self.oldest_event_ms()],
        )?;
        execute(&self.db, &format!("UPDATE events SET data = NULL WHERE {is_used}"), [n]).map(drop)
    }

    fn oldest_event_ms(&self) -> i64 {
        self.retention.now_ms().saturating_sub(self.retention.keep_ms())
    }

    /// Forgets old events, a few at a time. One with open messages is forgotten with the last of them.
    pub(in crate::store) fn forget_events(&mut self) -> Result<()> {
        if !self.events.have_events {
            return Ok(());
        }
        let ended = "SELECT n FROM events WHERE until_ms <= ? LIMIT ?";
        let ended: Vec<i64> = rows(&self.db, ended, [self.retention.now_ms(), STEP], |row| row.get(0))?;
        for n in ended {
            execute(&self.db, "UPDATE events SET until_ms = NULL WHERE n = ?", [n])?;
            self.drop_data(n)?;
        }
        let oldest_ms = self.oldest_event_ms();
        let mut next = cached(&self.db, "SELECT n, at_ms FROM events WHERE n > ? ORDER BY n LIMIT 1")?;
        for _ in 0..STEP {
            let found = next.query_row([self.events.looked_through], |row| row.try_into()).optional()?;
            let Some((n, _)) = found.filter(|(_, at_ms): &(i64, i64)| *at_ms < oldest_ms) else { break };
            self.drop_data(n)?;
            self.events.looked_through = n;
        }
        Ok(())
    }

    /// The time until which an event of now is remembered for so long.
    #[cfg(test)]
    pub(crate) fn remembers_until_ms(&self, ms: i64) -> i64 {
        self.retention.now_ms() + ms
    }

    /// The events that the message waits for, and why it is due.
    pub(in crate::store) fn until_of(&self, seq: i64) -> rusqlite::Result<Option<Until>> {
        let mut select = self.db.prepare_cached("SELECT names, event FROM waits WHERE seq = ?")?;
        let row = |row: &rusqlite::Row<'_>| {
            let cause = match row.get(1)? {
                None => Cause::Open,
                Some(0) => Cause::Deadline,
                Some(n) => Cause::Event(n, self.data_of(n)?),
            };
            Ok(Until { names: row.get_ref(0)?.as_str()?.into(), cause })
        };
        select.query_row([seq], row).optional()
    }
}

/// Notes what a new message of this key waits for.
pub(in crate::store) fn write_waits(db: &Connection, seq: i64, key: &str, until: &Until) -> Result<()> {
    let event = match &until.cause {
        Cause::Open => None,
        Cause::Deadline => Some(0),
        Cause::Event(n, _) => Some(*n),
    };
    let text = "INSERT INTO waits (seq, key, names, event) VALUES (?, ?, ?, ?)";
    execute(db, text, params![seq, lane_of(key), until.names, event])?;
    event.map_or(Ok(0), |n| execute(db, "UPDATE events SET open = open + 1 WHERE n = ?", [n])).map(drop)
}
