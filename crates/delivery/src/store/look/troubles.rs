//! What an operator has to deal with: the keys that have been without success for longest, the dead letters that the store
//! has kept, the last actions on many messages, and the named destinations (rules D14, D16, D23).

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use std::collections::{BinaryHeap, HashSet};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};

use super::messages::page_of;
use super::snapshot::{Snapshot, optional_text, text};
use crate::base::display::cut;
use crate::base::error::DeliveryError;
use crate::message::hashes::lane_of;
use crate::store::sql::rows;
use crate::store::tables::requests::{Filter, Kind};
use crate::store::types::Letter;

/// How many messages with attempts are looked at: some ten milliseconds.
const LOOKED_AT: usize = 50_000;

/// How many actions are listed.
const MOST_ACTIONS: usize = 1_000;
/// How many characters of a name are told.
const LONGEST_NAME: usize = 200;
/// How many rows are kept for each named key, because a key may have several messages with attempts.
const SPARE: usize = 4;

/// A key that fails, with the message that waits for its next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInDoubt {
    /// The number of the message.
    pub seq: i64,
    /// The key; `None`: the message has none. At most 200 characters.
    pub key: Option<String>,
    /// The id of the message. At most 200 characters.
    pub id: String,
    /// Since when the message is without success. Time in which the destination was down, or no process ran, is left out.
    pub since_ms: i64,
    /// Sends that failed, and one on its way that a crash would count.
    pub fails: u32,
    /// The error of the last send that ended with one.
    pub error: Option<String>,
    /// When the message is tried again, if it is not paused.
    pub next_ms: i64,
    /// Whether the key is paused.
    pub is_paused: bool,
}

/// The keys whose message has been without success for longest, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The keys.
    pub keys: Vec<KeyInDoubt>,
    /// Whether all messages with attempts were looked at, and not only the 50,000 that were accepted first.
    pub is_complete: bool,
}

impl Snapshot {
    /// The `most` keys that have been without success for longest, among the 50,000 messages with attempts that were
    /// accepted first.
    pub fn longest_in_doubt(&self, most: usize) -> Result<Longest, DeliveryError> {
        self.ask(|db| longest(db, most, LOOKED_AT))
    }
}

fn longest(db: &Connection, most: usize, looked_at: usize) -> rusqlite::Result<Longest> {
    let mut select = db.prepare("SELECT at_ms - waited_ms, seq, next_ms IS NULL FROM attempts ORDER BY seq LIMIT ?")?;
    let mut rows = select.query([looked_at as i64 + 1])?;
    let mut first: BinaryHeap<(i64, i64)> = BinaryHeap::new(); // the latest one on top
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen > looked_at || row.get(2)? {
            continue; // it was moved, or only has strikes
        }
        first.push((row.get(0)?, row.get(1)?));
        if first.len() > SPARE * most {
            first.pop();
        }
    }
    let (mut keys, mut names) = (Vec::new(), HashSet::new());
    for (since_ms, seq) in first.into_sorted_vec() {
        let Some((lane, it)) = find(db, seq, since_ms)? else { continue };
        if lane.is_none_or(|lane| names.insert(lane)) {
            keys.push(it);
        }
        if keys.len() == most {
            break;
        }
    }
    Ok(Longest { keys, is_complete: seen <= looked_at })
}

/// This message, and the number of its key's lane.
fn find(db: &Connection, seq: i64, since_ms: i64) -> rusqlite::Result<Option<(Option<i64>, KeyInDoubt)>> {
    let query = "SELECT m.key, m.id, a.attempts, a.error, a.next_ms FROM messages m JOIN attempts a USING (seq) \
                WHERE m.seq = ?";
    let paused = "SELECT 1 FROM paused_keys WHERE lane = ?";
    let shortened = |name: String| cut(&name, LONGEST_NAME).to_owned();
    let found = db.prepare_cached(query)?.query_row([seq], |row| {
        let key = optional_text(row, 0)?;
        let lane = key.as_deref().map(lane_of);
        let (key, id) = (key.map(shortened), shortened(text(row, 1)?));
        let (fails, error, next_ms) = (row.get(2)?, optional_text(row, 3)?, row.get(4)?);
        let is_paused = lane.map_or(Ok(false), |lane| db.prepare_cached(paused)?.exists([lane]))?;
        Ok((lane, KeyInDoubt { seq, key, id, since_ms, fails, error, next_ms, is_paused }))
    });
    found.optional()
}

/// A dead letter, with its number and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number. The first letter of a store has 1.
    pub n: i64,
    /// When it was written.
    pub at_ms: i64,
    /// The letter. Its record is cut.
    pub letter: Letter,
    /// The destination that the message named.
    pub destination: Option<String>,
    /// The tenant that the message named.
    pub tenant: Option<String>,
    /// The event that let the message go, as JSON; empty if none did, and it has `until_event`.
    pub event: Option<String>,
}

impl Snapshot {
    /// Dead letters with numbers before this one, the last one first, with this many bytes of their records. `destination`,
    /// `tenant`: only those of messages that named it.
    pub fn letters(
        &self,
        before_n: i64,
        destination: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Kept>, DeliveryError> {
        let of_it =
            |name, given: Option<&str>| if given.is_some() { format!("{name} = ?") } else { "? IS NULL".to_owned() };
        let (of_it, of_tenant) = (of_it("destination", destination), of_it("tenant", tenant));
        let query = format!(
            "SELECT n, at_ms, source, line, reason, allowed, substr(CAST(record AS BLOB), 1, ?), destination, tenant, event \
             FROM dead_letters WHERE {of_it} AND {of_tenant} AND n < ? ORDER BY n DESC LIMIT ?"
        );
        let kept = |row: &Row<'_>| {
            let letter = Letter {
                source: text(row, 2)?,
                line: row.get(3)?,
                reason: text(row, 4)?,
                allowed: text(row, 5)?,
                record: row.get::<_, Option<_>>(6)?.unwrap_or_default(), // SQLite has no part of an empty record
            };
            let (destination, tenant, event) = (optional_text(row, 7)?, optional_text(row, 8)?, optional_text(row, 9)?);
            Ok(Kept { n: row.get(0)?, at_ms: row.get(1)?, letter, destination, tenant, event })
        };
        tenant.map_or(Ok(0), |name| self.tenant_named(name))?;
        let values = params![bytes as i64, destination, tenant, before_n, limit as i64];
        let found: Vec<Kept> = self.ask(|db| rows(db, &query, values, kept))?;
        if let (Some(name), true) = (destination, found.is_empty()) {
            self.share_named(name)?; // of one that was removed there may be letters
        }
        Ok(found)
    }

    /// The number of dead letters that are not written out yet. A deliverer does that when it opens the store.
    pub fn unwritten_letters(&self) -> Result<u64, DeliveryError> {
        let query = "SELECT count(*) FROM dead_letters \
                     WHERE n > ifnull((SELECT value FROM meta WHERE name = 'letters_written'), 0)";
        self.ask(|db| db.query_row(query, [], |row| Ok(row.get::<_, i64>(0)? as u64)))
    }
}

/// An action, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSeen {
    /// Its name.
    pub id: String,
    /// What it does.
    pub kind: Kind,
    /// Its messages.
    pub filter: Filter,
    /// When it was begun.
    pub began_ms: i64,
    /// When it was through all of its messages; `None`: it is at work.
    pub ended_ms: Option<i64>,
    /// How many messages were changed so far.
    pub changed: i64,
    /// How many messages were being sent in that moment, and were not changed.
    pub too_late: i64,
}

impl Snapshot {
    /// The last thousand actions, the newest first, or fewer if their names have 4 MiB; or the action with this id, if it is
    /// kept.
    pub fn actions(&self, id: Option<&str>) -> Result<Vec<ActionSeen>, DeliveryError> {
        let query = "SELECT id, kind, key, key_prefix, due_from_ms, due_before_ms, began_ms, ended_ms, changed, too_late, \
                     destination, tenant FROM actions WHERE ?1 IS NULL OR id = ?1 ORDER BY n DESC";
        let action = |row: &Row<'_>| {
            Ok(ActionSeen {
                id: text(row, 0)?,
                kind: row.get(1)?,
                filter: Filter {
                    key: optional_text(row, 2)?,
                    key_prefix: optional_text(row, 3)?,
                    due_from_ms: row.get(4)?,
                    due_before_ms: row.get(5)?,
                    destination: optional_text(row, 10)?,
                    tenant: optional_text(row, 11)?,
                },
                began_ms: row.get(6)?,
                ended_ms: row.get(7)?,
                changed: row.get(8)?,
                too_late: row.get(9)?,
            })
        };
        self.ask(|db| {
            let mut select = db.prepare_cached(query)?;
            let name_bytes = |seen: &ActionSeen| seen.id.len() + seen.filter.size();
            Ok::<_, rusqlite::Error>(page_of(select.query_map(params![id], action)?, MOST_ACTIONS, name_bytes)?.0)
        })
    }
}

impl Snapshot {
    /// Named destinations from this name on, in the order of their names: each with its settings in JSON, without secrets.
    pub fn destinations(&self, from: &str, limit: usize) -> Result<Vec<(String, String)>, DeliveryError> {
        let query = "SELECT name, settings FROM destinations WHERE settings <> '' AND name >= ? ORDER BY name LIMIT ?";
        let shown = |row: &Row<'_>| {
            let mut settings: Map<String, Value> = serde_json::from_str(&text(row, 1)?).unwrap_or_default();
            settings.remove("secrets");
            Ok((text(row, 0)?, Value::Object(settings).to_string()))
        };
        self.ask(|db| rows(db, query, params![from, limit as i64], shown))
    }

    /// Tenants that were set or paused, from this name on, in the order of their names: each with its settings in JSON.
    pub fn tenants(&self, from: &str, limit: usize) -> Result<Vec<(String, String)>, DeliveryError> {
        let query = "SELECT name, json_set(settings, '$.paused', json(iif(paused_ms IS NULL, 'false', 'true')), \
                     '$.paused_until_ms', (SELECT until_ms FROM pause_ends e WHERE part = 'tenant' AND e.name = t.name)) \
                     FROM tenants t WHERE settings IS NOT NULL AND name >= ? ORDER BY name LIMIT ?";
        self.ask(|db| rows(db, query, params![from, limit as i64], |row| Ok((text(row, 0)?, text(row, 1)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_looked_at_and_this_is_told__d14() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "CREATE TABLE messages (seq INTEGER PRIMARY KEY, key TEXT, id TEXT);
             CREATE TABLE attempts (seq INTEGER PRIMARY KEY, attempts INTEGER, next_ms INTEGER, error TEXT,
                 waited_ms INTEGER, at_ms INTEGER);
             CREATE TABLE paused_keys (lane INTEGER PRIMARY KEY);
             WITH n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 6)
             INSERT INTO messages SELECT n, iif(n IN (5, 6), 'k', NULL), n FROM n;
             INSERT INTO attempts SELECT seq, 1, iif(seq = 3, NULL, 99), 'no', seq, 50 FROM messages;",
        )
        .unwrap();
        let seqs_of = |most, looked_at| {
            let found = longest(&db, most, looked_at).unwrap();
            (found.keys.iter().map(|it| it.seq).collect::<Vec<_>>(), found.is_complete)
        };
        assert_eq!(seqs_of(10, 6), (vec![6, 4, 2, 1], true)); // 3 was moved, 5 is of the same key as 6
        assert_eq!(seqs_of(2, 6), (vec![6, 4], true));
        assert_eq!(seqs_of(10, 4), (vec![4, 2, 1], false));
    }
}
