//! Pages of messages (D14): open messages in order of delivery; messages with an outcome, the last one first; recurring
//! messages in order of acceptance. And of remembered events (D22), the one that ends first at the beginning.

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use rusqlite::{Connection, Row, named_params};

use super::destinations::share_named;
use super::message::{ENDED, OF_OPEN, OPEN, Seen, add_letter, ended, find, open};
use super::snapshot::{Snapshot, optional_text, text};
use crate::base::error::DeliveryError;
use crate::message::checked_tenant;
use crate::message::incoming::lane_of;
use crate::message::named::no_destination;
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Result, rows};
use crate::store::tables::tenants::{NOT_KNOWN, Shares, number_of, of_shares};
use crate::store::types::{Outcome, Position};

/// What a page shows. It ends early after 4 MiB of names. With a filter a page may be short or empty, although it is not the
/// last.
#[derive(Clone, Copy, Debug)]
pub struct PageOf<'a> {
    /// Messages with this key.
    pub key: Option<&'a str>,
    /// Messages that name this destination. Delivered and cancelled ones are not found by it.
    pub destination: Option<&'a str>,
    /// Messages that name this tenant; found as those of a destination are.
    pub tenant: Option<&'a str>,
    /// Messages that wait for an event of this name, which is known of open ones; remembered events of this name.
    pub until: Option<&'a str>,
    /// Messages due at this time or later.
    pub due_from_ms: Option<i64>,
    /// Messages due before this time.
    pub due_before_ms: Option<i64>,
    /// The most messages of the page.
    pub limit: usize,
    /// How many messages the call reads at most, where the filter leaves out most of them.
    pub looked_at: usize,
}

/// Messages, and the position after which the next page begins; `None` after the last page.
type Page<T> = (Vec<Seen>, Option<T>);

impl Snapshot {
    /// A page of open messages after this position, without recurring messages.
    pub fn waiting(&self, of: PageOf<'_>, after: Option<Position>) -> Result<Page<Position>, DeliveryError> {
        let shares = self.shares_of(of)?;
        self.ask(|db| waiting(db, of, shares, after))
    }

    /// A page of recurring messages with numbers after this one.
    pub fn recurring(&self, of: PageOf<'_>, after_seq: Option<i64>) -> Result<Page<i64>, DeliveryError> {
        let shares = self.shares_of(of)?;
        self.ask(|db| recurring(db, of, shares, after_seq.unwrap_or(0)))
    }

    /// A page of remembered events after this position: the end of its time, by the store's own clock, and its number.
    pub fn remembered(&self, of: PageOf<'_>, after: Option<Position>) -> Result<Page<Position>, DeliveryError> {
        self.ask(|db| remembered(db, of, after.unwrap_or((i64::MIN, 0))))
    }

    /// A page of messages with this outcome, from rows of the ledger before this one. Withdrawn messages count as
    /// cancelled. A requeued dead message is left out.
    pub fn ended(&self, outcome: Outcome, of: PageOf<'_>, before_n: Option<i64>) -> Result<Page<i64>, DeliveryError> {
        if outcome != Outcome::Dead {
            self.shares_of(of)?; // of one that was removed there may be dead letters
        }
        self.ask(|db| all_ended(db, outcome, of, before_n.unwrap_or(i64::MAX)))
    }

    fn shares_of(&self, of: PageOf<'_>) -> Result<Shares, DeliveryError> {
        let tenant = of.tenant.map(|name| self.tenant_named(name)).transpose()?;
        Ok((of.destination.map(|name| self.share_named(name)).transpose()?, tenant))
    }

    /// The number of the tenant with this name; `NOT_KNOWN` if no message has named it.
    pub(super) fn tenant_named(&self, name: &str) -> Result<i64, DeliveryError> {
        checked_tenant(name).map_err(|bad| DeliveryError::Usage(bad.to_string()))?;
        Ok(self.ask(|db| number_of(db, name))?.unwrap_or(NOT_KNOWN))
    }

    /// The number of the destination with this name.
    pub(super) fn share_named(&self, name: &str) -> Result<i64, DeliveryError> {
        let unknown = || format!("{}: name one that is set", no_destination(name));
        self.ask(|db| share_named(db, name))?.ok_or_else(|| DeliveryError::Usage(unknown()))
    }
}

fn waiting(db: &Connection, of: PageOf<'_>, shares: Shares, after: Option<Position>) -> Result<Page<Position>> {
    let mut start = after.unwrap_or((i64::MIN, 0));
    if let Some(from_ms) = of.due_from_ms.filter(|from_ms| *from_ms > start.0) {
        start = (from_ms, 0);
    }
    let before_ms = of.due_before_ms.unwrap_or(NEVER_MS);
    let more = of.limit as i64 + 1;
    let is_filtered = of.key.is_some() || of.until.is_some() || shares != (None, None);
    let (looked_at, near) = if is_filtered { (of.looked_at as i64, -1) } else { (more, more) };
    let ((of_share, are_several), (of_it, _)) = (of_shares(db, "share", shares)?, of_shares(db, "b.share", shares)?);
    // Rows of several shares have to be sorted. If they are more than one call looks at, it reads those of all shares.
    let many = format!("SELECT count(*) > ?1 FROM (SELECT 1 FROM waiting WHERE {of_share} LIMIT ?1 + 1)");
    let (from, inside, outside) = match are_several {
        true if db.query_row(&many, [looked_at], |row| row.get(0))? => ("waiting", "1", &*of_share),
        true => ("waiting INDEXED BY waiting_by_share", &*of_share, "1"),
        false => ("waiting", &*of_share, "1"),
    };
    let is_of_it = format!("EXISTS (SELECT 1 FROM bodies b WHERE b.seq = some.seq AND {of_it})");
    let of_near = if shares == (None, None) { "1" } else { &is_of_it };
    let some = "(due_ms, seq) > (:due_ms, :seq) AND due_ms < :before_ms ORDER BY due_ms, seq LIMIT :most";
    // Two keys may share a lane, so the keys are compared too.
    let has_key = "EXISTS (SELECT 1 FROM messages m WHERE m.seq = some.seq AND m.key = :key)";
    let is_until = "(:until IS NULL OR EXISTS (SELECT 1 FROM waits u WHERE u.seq = some.seq AND u.event IS NULL \
                    AND instr(' ' || u.names || ' ', ' ' || :until || ' ')))";
    let texts = [
        format!(
            "SELECT due_ms, seq FROM (SELECT due_ms, seq, lane, share FROM {from} WHERE {inside} AND {some}) AS some \
             WHERE {outside} AND (:key IS NULL OR ((lane = :lane OR share IS NOT NULL) AND {has_key})) AND {is_until} ORDER BY due_ms, seq LIMIT :limit"
        ),
        format!(
            "SELECT due_ms, seq FROM (SELECT due_ms, seq FROM near_messages WHERE {some}) AS some \
             WHERE (:key IS NULL OR {has_key}) AND {is_until} AND {of_near}"
        ),
    ];
    let position = |row: &Row<'_>| row.try_into();
    let (key, lane) = (of.key, lane_of(of.key));
    let values = named_params! {
        ":due_ms": start.0, ":seq": start.1, ":before_ms": before_ms, ":most": looked_at, ":key": key, ":lane": lane,
        ":limit": more, ":until": of.until
    };
    let mut found: Vec<Position> = rows(db, &texts[0], values, position)?;
    let mut reached = None;
    if found.len() <= of.limit {
        let last = format!("SELECT due_ms, seq FROM {from} WHERE {inside} AND {some} OFFSET :last");
        let values = named_params! {
            ":due_ms": start.0, ":seq": start.1, ":before_ms": before_ms, ":most": 1, ":last": looked_at - 1
        };
        reached = rows(db, &last, values, position)?.pop();
    }
    let values = named_params! {
        ":due_ms": start.0, ":seq": start.1, ":before_ms": before_ms, ":most": near, ":key": key, ":until": of.until
    };
    found.extend(rows(db, &texts[1], values, position)?);
    found.retain(|position| reached.is_none_or(|reached| *position <= reached));
    found.sort_unstable();
    if found.len() > of.limit {
        found.truncate(of.limit);
        reached = found.last().copied();
    }
    let mut select = db.prepare_cached(&format!("SELECT {OPEN} {OF_OPEN} WHERE m.seq = ?"))?;
    let (seen, is_cut) =
        page_of(found.iter().map(|(_, seq)| select.query_row([seq], open)), of.limit, Seen::name_bytes)?;
    if is_cut {
        reached = Some(found[seen.len() - 1]);
    }
    Ok((seen, reached))
}

fn remembered(db: &Connection, of: PageOf<'_>, after: Position) -> Result<Page<Position>> {
    let some = "FROM events WHERE (until_ms, n) > (:until_ms, :n) AND until_ms >= :from_ms AND until_ms < :before_ms \
                ORDER BY until_ms, n LIMIT :most";
    let query = format!(
        "SELECT n, key, id, event, until_ms FROM (SELECT * {some}) \
         WHERE (:key IS NULL OR key = :key) AND (:event IS NULL OR event = :event) ORDER BY until_ms, n LIMIT :limit"
    );
    let (from_ms, before_ms) = (of.due_from_ms.unwrap_or(i64::MIN), of.due_before_ms.unwrap_or(i64::MAX));
    let values = named_params! {
        ":until_ms": after.0, ":n": after.1, ":from_ms": from_ms, ":before_ms": before_ms, ":key": of.key,
        ":event": of.until, ":most": of.looked_at as i64, ":limit": of.limit as i64 + 1
    };
    let event = |row: &Row<'_>| {
        let (key, event_name) = (optional_text(row, 1)?, optional_text(row, 3)?);
        Ok(Seen { seq: row.get(0)?, key, id: text(row, 2)?, event_name, due_ms: row.get(4)?, ..Seen::default() })
    };
    let (found, is_cut) = page_of(db.prepare_cached(&query)?.query_map(values, event)?, of.limit, Seen::name_bytes)?;
    if is_cut {
        let next = found.last().and_then(|last| Some((last.due_ms?, last.seq)));
        return Ok((found, next));
    }
    let values = named_params! {
        ":until_ms": after.0, ":n": after.1, ":from_ms": from_ms, ":before_ms": before_ms, ":most": 1,
        ":last": of.looked_at as i64 - 1
    };
    let last = format!("SELECT until_ms, n {some} OFFSET :last");
    Ok((found, rows(db, &last, values, |row| row.try_into())?.pop()))
}

fn recurring(db: &Connection, of: PageOf<'_>, shares: Shares, after_seq: i64) -> Result<Page<i64>> {
    let (of_share, _) = of_shares(db, "share", shares)?;
    let some = format!(
        "SELECT seq FROM waiting WHERE {of_share} AND due_ms = :never_ms AND seq > :after ORDER BY seq LIMIT :most"
    );
    let query = format!(
        "SELECT m.seq, m.key, m.id, next.due_ms, b.recurrence, d.name, t.name FROM ({some}) AS some \
         JOIN messages m ON m.seq = some.seq JOIN bodies b ON b.seq = some.seq \
         JOIN occurrences o ON o.of_seq = some.seq JOIN messages next ON next.seq = o.seq \
         LEFT JOIN destinations d ON d.share = iif(b.share >> 32, (b.share >> 32) - 1, b.share) \
         LEFT JOIN tenants t ON t.tenant = b.share & 4294967295 AND b.share >> 32 WHERE (:key IS NULL OR m.key = :key) AND next.due_ms >= :from_ms AND next.due_ms < :before_ms \
         ORDER BY some.seq LIMIT :limit"
    );
    let values = named_params! {
        ":never_ms": NEVER_MS, ":after": after_seq, ":most": of.looked_at as i64, ":key": of.key,
        ":from_ms": of.due_from_ms.unwrap_or(i64::MIN), ":before_ms": of.due_before_ms.unwrap_or(i64::MAX),
        ":limit": of.limit as i64 + 1
    };
    let rule = |row: &Row<'_>| {
        let (seq, due_ms, rule) = (row.get(0)?, row.get(3)?, optional_text(row, 4)?);
        let (key, id, destination, tenant) =
            (optional_text(row, 1)?, text(row, 2)?, optional_text(row, 5)?, optional_text(row, 6)?);
        Ok(Seen { seq, key, id, due_ms, rule, destination, tenant, ..Seen::default() })
    };
    let (found, is_cut) = page_of(db.prepare_cached(&query)?.query_map(values, rule)?, of.limit, Seen::name_bytes)?;
    if is_cut {
        let next = found.last().map(|last| last.seq);
        return Ok((found, next));
    }
    let last = format!("{some} OFFSET :last");
    let values =
        named_params! { ":never_ms": NEVER_MS, ":after": after_seq, ":most": 1, ":last": of.looked_at as i64 - 1 };
    let reached = rows(db, &last, values, |row| row.get(0))?.pop();
    Ok((found, reached))
}

fn all_ended(db: &Connection, outcome: Outcome, of: PageOf<'_>, before_n: i64) -> Result<Page<i64>> {
    let some = "FROM ledger WHERE n < :before_n ORDER BY n DESC LIMIT :most";
    let query = format!(
        "SELECT {ENDED}, n FROM (SELECT * {some}) AS l JOIN messages m ON m.seq = l.seq \
         WHERE l.outcome IN (:outcome, :other) AND (:key IS NULL OR key = :key) \
         AND due_ms >= :from_ms AND due_ms < :before_ms AND (:destination IS NULL AND :tenant IS NULL OR EXISTS ( \
             SELECT 1 FROM dead_letters d WHERE d.source = 'delivery' AND d.line = l.seq \
             AND (:destination IS NULL OR d.destination = :destination) AND (:tenant IS NULL OR d.tenant = :tenant) \
         )) ORDER BY n DESC LIMIT :limit"
    );
    let other = if outcome == Outcome::Cancelled { Outcome::Withdrawn } else { outcome };
    let values = named_params! {
        ":before_n": before_n, ":most": of.looked_at as i64, ":outcome": outcome, ":other": other, ":key": of.key,
        ":from_ms": of.due_from_ms.unwrap_or(i64::MIN), ":before_ms": of.due_before_ms.unwrap_or(i64::MAX),
        ":limit": of.limit as i64 + 1, ":destination": of.destination, ":tenant": of.tenant
    };
    let both = |row: &Row<'_>| Ok((ended(row)?, row.get(9)?));
    let (found, is_cut): (Vec<(Seen, i64)>, _) =
        page_of(db.prepare_cached(&query)?.query_map(values, both)?, of.limit, |(seen, _)| seen.name_bytes())?;
    let next = if is_cut {
        found.last().map(|(_, n)| *n)
    } else {
        let values = named_params! { ":before_n": before_n, ":most": 1, ":last": of.looked_at as i64 - 1 };
        rows(db, &format!("SELECT n {some} OFFSET :last"), values, |row| row.get(0))?.pop()
    };
    let mut page = Vec::with_capacity(found.len());
    for (mut seen, _) in found {
        if outcome.is_dead() {
            add_letter(db, &mut seen)?;
            // A requeue removes the dead letter, and the message goes on under another number.
            if seen.last_error.is_none() && find(db, seen.key.as_deref(), &seen.id)? != Some(seen.seq) {
                continue;
            }
        }
        page.push(seen);
    }
    Ok((page, next))
}

/// The most bytes of names in a page, but for its last message (D8): a name may have 1 MiB.
const PAGE_BYTES: usize = 4 << 20;

/// The rows of a page, until there are `limit` of them or they have [`PAGE_BYTES`] of names. `true`: there are more.
pub(super) fn page_of<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
    limit: usize,
    name_bytes: impl Fn(&T) -> usize,
) -> rusqlite::Result<(Vec<T>, bool)> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for row in rows {
        if found.len() == limit || bytes >= PAGE_BYTES {
            return Ok((found, true));
        }
        let row = row?;
        bytes += name_bytes(&row);
        found.push(row);
    }
    Ok((found, false))
}
