//! The named destinations of a store, with how much waits for each (rule D23).
//!
//! A near message has no row in `waiting`. An engine counts those in its memory; in a file they are looked for.

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use rusqlite::{Connection, OptionalExtension, Row};
use rustc_hash::FxHashMap;

use super::snapshot::{Snapshot, text};
use crate::base::error::DeliveryError;
use crate::message::named::NamedSettings;
use crate::message::recurrence::NEVER_MS;
use crate::message::shares::{destination_in, tenants_at};
use crate::store::sql::{cached, rows};

/// The messages of a destination are counted up to this.
pub(crate) const MOST_COUNTED: u64 = 10_000;
/// How many of its overdue messages are looked at for the next try.
const LOOKED_AT: i64 = 1_000;
/// How many destinations are looked at for those that are overdue for longest.
const MOST_LOOKED_AT: i64 = 10_000;

/// Whether a destination is paused; the index `paused_destinations` has the same text.
const IS_PAUSED: &str = "paused_ms IS NOT NULL AND settings <> ''";
/// The shares of destination `?1`, of those that have a row in `waiting`: its own, and those of its tenants from after `?2`
/// to `?3`. A microsecond for each of them.
const SHARES: &str = "WITH RECURSIVE shares (share) AS (
    VALUES (?) UNION ALL
    SELECT (SELECT min(w.share) FROM waiting w WHERE w.share > max(shares.share, ?) AND w.share <= ?) FROM shares
    WHERE shares.share IS NOT NULL)";
const FIND: &str = "SELECT share FROM destinations WHERE name = ? AND settings <> ''";

/// How many destinations there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationCounts {
    /// All of them.
    pub all: u64,
    /// To how many nothing is sent, as they are set.
    pub paused: u64,
    /// How many others are down. `None`: only the process that delivers knows.
    pub down: Option<u64>,
}

/// A named destination. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationSeen {
    /// Its name.
    pub name: String,
    /// The most messages in a time, as it was set.
    pub rate: Option<String>,
    /// The most requests at a time, as it was set.
    pub concurrency: Option<usize>,
    /// Since when it is paused.
    pub paused_since_ms: Option<i64>,
    /// Why, if it was paused because it failed for long.
    pub paused_reason: Option<String>,
    /// Since when it fails without a success, if its settings say that this is to end in a pause. The store knows it after a
    /// minute.
    pub failing_since_ms: Option<i64>,
    /// Messages without an outcome, up to `MOST_COUNTED`. Recurring messages do not count, their occurrences do.
    pub waiting: u64,
    /// How many of them are due, up to `MOST_COUNTED`.
    pub overdue: u64,
    /// When the first of its messages is due, or was.
    pub first_due_ms: Option<i64>,
    /// The first time at which a message that failed is tried again, among the first overdue ones.
    pub next_try_ms: Option<i64>,
    /// `None`: only the process that delivers knows them.
    pub answers: Option<DestinationAnswers>,
}

/// The answers of a destination since the process has opened the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationAnswers {
    /// Messages that have arrived.
    pub delivered: u64,
    /// Those among them that were sent more than a second after they were due.
    pub late: u64,
    /// Attempts that failed, also those that do not count.
    pub failed: u64,
    /// Why the last attempt that failed did.
    pub last_error: Option<String>,
    /// When that was.
    pub last_error_ms: Option<i64>,
    /// Since when it is down, unless it is paused.
    pub down_since_ms: Option<i64>,
    /// Why.
    pub down_reason: Option<String>,
}

/// The messages of a destination that have no row in `waiting`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Near {
    pub waiting: u64,
    pub overdue: u64,
    pub first_due_ms: Option<i64>,
    pub next_try_ms: Option<i64>,
}

impl Near {
    fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.overdue += other.overdue;
        self.first_due_ms = self.first_due_ms.into_iter().chain(other.first_due_ms).min();
    }
}

/// By the number of the destination.
pub(crate) type NearByShare = FxHashMap<i64, Near>;

impl Snapshot {
    /// The destinations with these names, as far as there are any. Without names: `limit` of them. Those whose messages are
    /// overdue for longest come first, then the others by name. O(messages).
    pub fn destination_figures(
        &self,
        names: Option<&[String]>,
        limit: usize,
        now_ms: i64,
    ) -> Result<(DestinationCounts, Vec<DestinationSeen>), DeliveryError> {
        if self.destination_counts()?.all == 0 {
            return Ok(Default::default());
        }
        let near = self.ask(|db| near_by_share(db, now_ms))?;
        let (counts, found) = self.destinations_beside(names, Vec::new(), limit, now_ms, &near)?;
        Ok((counts, found.into_iter().map(|(_, seen)| seen).collect()))
    }

    /// The destinations with these names; or, without names, `limit` of them: `first`, those whose messages are overdue for
    /// longest, then others by name. Each with its number.
    pub(crate) fn destinations_beside(
        &self,
        names: Option<&[String]>,
        mut first: Vec<i64>,
        limit: usize,
        now_ms: i64,
        near: &NearByShare,
    ) -> Result<(DestinationCounts, Vec<(i64, DestinationSeen)>), DeliveryError> {
        self.ask(|db| {
            let mut found = Vec::new();
            if names.is_none() && first.len() < limit {
                let overdue = overdue_longest(db, near, limit, now_ms)?;
                first.extend(overdue.into_iter().filter(|share| !first.contains(share)).collect::<Vec<_>>());
            }
            for share in shares(db, names, first, limit)? {
                found.extend(destination(db, share, now_ms, near)?.map(|seen| (share, seen)));
            }
            Ok::<_, rusqlite::Error>((counts(db)?, found))
        })
    }

    /// How many destinations there are.
    pub(crate) fn destination_counts(&self) -> Result<DestinationCounts, DeliveryError> {
        self.ask(counts)
    }

    /// The first due time of the messages in `waiting` of this destination, and whether it is paused.
    pub(crate) fn first_due_and_pause_of(&self, share: i64) -> Result<(Option<i64>, bool), DeliveryError> {
        let paused = format!("SELECT 1 FROM destinations WHERE share = ? AND {IS_PAUSED}");
        self.ask(|db| Ok::<_, rusqlite::Error>((first_due_ms(db, share)?, cached(db, &paused)?.exists([share])?)))
    }
}

/// The number of the destination with this name.
pub(super) fn share_named(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    cached(db, FIND)?.query_row([name], |row| row.get(0)).optional()
}

fn counts(db: &Connection) -> rusqlite::Result<DestinationCounts> {
    let query = format!(
        "SELECT (SELECT count(*) FROM destinations WHERE settings <> ''), \
         (SELECT count(*) FROM destinations WHERE {IS_PAUSED})"
    );
    let count = |row: &Row<'_>, column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)? as u64);
    db.query_row(&query, [], |row| Ok(DestinationCounts { all: count(row, 0)?, paused: count(row, 1)?, down: None }))
}

/// The numbers of the destinations that are wanted.
fn shares(db: &Connection, names: Option<&[String]>, mut first: Vec<i64>, limit: usize) -> rusqlite::Result<Vec<i64>> {
    if let Some(names) = names {
        return names.iter().filter_map(|name| share_named(db, name).transpose()).collect();
    }
    let by_name = "SELECT share FROM destinations WHERE settings <> '' ORDER BY name LIMIT ?";
    first.truncate(limit);
    for share in rows(db, by_name, [limit as i64], |row| row.get(0))? {
        if first.len() < limit && !first.contains(&share) {
            first.push(share);
        }
    }
    Ok(first)
}

fn destination(
    db: &Connection,
    share: i64,
    now_ms: i64,
    near: &NearByShare,
) -> rusqlite::Result<Option<DestinationSeen>> {
    let find = "SELECT name, settings, paused_ms, pause_reason, failing_ms FROM destinations \
                WHERE share = ? AND settings <> ''";
    let found = |row: &Row<'_>| Ok((text(row, 0)?, text(row, 1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let Some((name, settings, paused_since_ms, paused_reason, failing_since_ms)) =
        cached(db, find)?.query_row([share], found).optional()?
    else {
        return Ok(None);
    };
    let NamedSettings { rate, concurrency, .. } = serde_json::from_str(&settings).unwrap_or_default();
    let near = near.get(&share).copied().unwrap_or_default();
    let (first, last) = tenants_at(share);
    let before_first = first - 1;
    let count = |before_ms: i64, near: u64| {
        let query = format!(
            "{SHARES} SELECT count(*) FROM (SELECT 1 FROM shares JOIN waiting w USING (share) WHERE due_ms < ? LIMIT ?)"
        );
        let most = MOST_COUNTED as i64;
        let rows: i64 =
            cached(db, &query)?.query_row((share, before_first, last, before_ms, most), |row| row.get(0))?;
        Ok::<_, rusqlite::Error>((rows as u64 + near).min(MOST_COUNTED))
    };
    let next = format!(
        "{SHARES} SELECT min(next_ms) FROM attempts WHERE seq IN \
         (SELECT seq FROM shares JOIN waiting w USING (share) WHERE due_ms <= ? LIMIT ?)"
    );
    let values = (share, before_first, last, now_ms, LOOKED_AT);
    let next_try_ms: Option<i64> = cached(db, &next)?.query_row(values, |row| row.get(0))?;
    Ok(Some(DestinationSeen {
        name,
        rate,
        concurrency,
        paused_since_ms,
        paused_reason,
        failing_since_ms,
        waiting: count(NEVER_MS, near.waiting)?,
        overdue: count(now_ms.saturating_add(1), near.overdue)?,
        first_due_ms: near.first_due_ms.into_iter().chain(first_due_ms(db, share)?).min(),
        next_try_ms: near.next_try_ms.into_iter().chain(next_try_ms).min(),
        answers: None,
    }))
}

fn first_due_ms(db: &Connection, share: i64) -> rusqlite::Result<Option<i64>> {
    let text = format!(
        "{SHARES} SELECT min((SELECT min(due_ms) FROM waiting w WHERE w.share = shares.share AND due_ms < ?)) FROM shares"
    );
    let (first, last) = tenants_at(share);
    cached(db, &text)?.query_row([share, first - 1, last, NEVER_MS], |row| row.get(0))
}

fn near_by_share(db: &Connection, now_ms: i64) -> rusqlite::Result<NearByShare> {
    let query = "SELECT share, count(*), count(*) FILTER (WHERE due_ms <= ?), min(due_ms) \
                 FROM near_messages JOIN bodies USING (seq) WHERE share IS NOT NULL GROUP BY 1";
    let near = |row: &Row<'_>| {
        let (waiting, overdue): (i64, i64) = (row.get(1)?, row.get(2)?);
        let counted = Near { waiting: waiting as u64, overdue: overdue as u64, ..Near::default() };
        Ok((row.get(0)?, Near { first_due_ms: row.get(3)?, ..counted }))
    };
    let mut found = NearByShare::default();
    for (share, it) in rows(db, query, [now_ms], near)? {
        found.entry(destination_in(share)).or_default().add(it);
    }
    Ok(found)
}

/// The numbers of the destinations whose messages are overdue for longest: of those in `near`, and of the first
/// `MOST_LOOKED_AT`.
fn overdue_longest(db: &Connection, near: &NearByShare, limit: usize, now_ms: i64) -> rusqlite::Result<Vec<i64>> {
    let near = near.iter().filter_map(|(share, it)| Some((*share, it.first_due_ms?)));
    let mut first: FxHashMap<i64, i64> = near.collect();
    let set = "SELECT share FROM destinations WHERE settings <> '' ORDER BY share LIMIT ?";
    for share in rows(db, set, [MOST_LOOKED_AT], |row| row.get(0))? {
        if let Some(first_ms) = first_due_ms(db, share)? {
            let known = first.entry(share).or_insert(first_ms);
            *known = first_ms.min(*known);
        }
    }
    let mut overdue: Vec<_> = first.into_iter().filter(|(_, due_ms)| *due_ms <= now_ms).collect();
    overdue.sort_unstable_by_key(|(share, due_ms)| (*due_ms, *share));
    Ok(overdue.into_iter().filter(|it| it.0 != 0).take(limit).map(|(share, _)| share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::schema::TABLES;
    use crate::store::sql::seen;

    #[test]
    fn at_most_ten_thousand_are_looked_at_for_those_that_are_overdue_for_longest__d8_d23() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(TABLES).unwrap();
        db.execute_batch(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10002)
             INSERT INTO waiting (due_ms, seq, size, share) SELECT 20000 - n, n, 0, n FROM n;
             INSERT INTO destinations SELECT seq, seq, '{}', NULL, NULL, NULL FROM waiting",
        )
        .unwrap();
        let mut near = NearByShare::default();
        assert_eq!(overdue_longest(&db, &near, 2, 20_000).unwrap(), [10_000, 9_999]);
        near.insert(10_002, Near { first_due_ms: Some(9_998), ..Near::default() });
        assert_eq!(overdue_longest(&db, &near, 2, 20_000).unwrap(), [10_002, 10_000]);
        assert!(overdue_longest(&db, &NearByShare::default(), 2, 9_000).unwrap().is_empty());
    }

    #[test]
    fn no_look_at_one_destination_reads_the_messages_of_another__d8_d23() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(TABLES).unwrap();
        db.execute_batch("INSERT INTO destinations VALUES (7, 'a', '{}', NULL, NULL, NULL)").unwrap();
        seen::take();
        destination(&db, 7, 0, &NearByShare::default()).unwrap().unwrap();
        let texts = seen::take();
        assert!(texts.len() >= 4, "{texts:?}");
        for text in texts {
            let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
            let unknown = vec![rusqlite::types::Null; explain.parameter_count()];
            let plan = explain.query_map(rusqlite::params_from_iter(unknown), |row| row.get::<_, String>(3));
            for step in plan.unwrap().map(Result::unwrap) {
                let is_by_share = !step.contains("waiting") || step.contains("waiting_by_share (share");
                assert!(is_by_share && !step.starts_with("SCAN w"), "{step}: {text}");
            }
        }
    }
}
