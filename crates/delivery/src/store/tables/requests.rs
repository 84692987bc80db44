//! Requests that outlive a restart (D16): actions on many messages with their progress, paused keys, and when pauses end.
//!
//! The last ten thousand ended actions are kept. A key is paused by the number of its lane. If two keys share a lane, they
//! count as one.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::message::Body;
use crate::message::incoming::lane_in;
use crate::message::recurrence::NEVER_MS;
use crate::message::shares::{share_of, tenants_at};
use crate::store::sql::{Result, cached, execute, rows};
use crate::store::tables::tenants::{NOT_KNOWN, number_of};
use crate::store::{Position, Store};

const KEPT: i64 = 10_000;

/// What an action does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cancels messages that wait.
    Cancel,
    /// Tries dead letters again.
    Requeue,
}

impl Kind {
    /// Its name in the store.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Requeue => "requeue",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Cancel, Self::Requeue].into_iter().find(|kind| kind.name() == name)
    }
}

impl ToSql for Kind {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for Kind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::of(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

/// Selects messages. A message must meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The key of the messages.
    pub key: Option<String>,
    /// The beginning of their keys.
    pub key_prefix: Option<String>,
    /// The messages are due at this time or later.
    pub due_from_ms: Option<i64>,
    /// The messages are due before this time.
    pub due_before_ms: Option<i64>,
    /// The messages name this destination.
    pub destination: Option<String>,
    /// The messages name this tenant.
    pub tenant: Option<String>,
}

impl Filter {
    /// The bytes of the filter's texts.
    pub(crate) fn size(&self) -> usize {
        let Self { key, key_prefix, destination, tenant, .. } = self;
        [key, key_prefix, destination, tenant].into_iter().flatten().map(String::len).sum()
    }

    /// Whether the filter has a condition on the key.
    pub(crate) fn asks_key(&self) -> bool {
        self.key.is_some() || self.key_prefix.is_some()
    }

    /// Whether the filter has a condition on due times.
    pub(crate) fn asks_due(&self) -> bool {
        self.due_from_ms.is_some() || self.due_before_ms.is_some()
    }

    /// Whether a message with this key may pass.
    pub(crate) fn takes_key(&self, key: Option<&str>) -> bool {
        let has_prefix = |prefix: &str| key.is_some_and(|key| key.starts_with(prefix));
        self.key.as_deref().is_none_or(|wanted| key == Some(wanted))
            && self.key_prefix.as_deref().is_none_or(has_prefix)
    }

    /// Whether a message with this key, destination and tenant may pass.
    pub(crate) fn takes_body(&self, body: Option<&Body>) -> bool {
        self.takes_key(body.and_then(Body::key))
            && self.destination.as_deref().is_none_or(|name| body.and_then(Body::destination) == Some(name))
            && self.tenant.as_deref().is_none_or(|name| body.and_then(Body::tenant) == Some(name))
    }

    /// Whether a message with this due time may pass. A recurring message is never due.
    pub(crate) fn takes_due(&self, due_ms: i64) -> bool {
        self.due_from_ms.is_none_or(|from| (from..NEVER_MS).contains(&due_ms))
            && self.due_before_ms.is_none_or(|before| due_ms < before)
    }
}

/// An action, and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub id: String,
    pub kind: Kind,
    pub filter: Filter,
    /// The number of the last message, or of the last dead letter, that the action includes. Later ones are left out.
    pub through: i64,
    /// Messages up to this position, or dead letters up to this number, are done.
    pub at: Position,
    /// The share of that position, if it is about some. Not stored: after a restart, all of them are looked at anew.
    pub share: i64,
    /// How many messages were changed.
    pub changed: u64,
    /// How many messages were not changed, because they were being sent.
    pub too_late: u64,
}

impl Store {
    /// Stores an action on many messages, which has a unique id. `None`: it is new. Otherwise, whether the known
    /// action with this id is the same.
    pub(crate) fn put_action(&mut self, action: &Action, now_ms: i64) -> Result<Option<bool>> {
        let Action { id, kind, filter, through, at, .. } = action;
        let text =
            "SELECT kind, key, key_prefix, due_from_ms, due_before_ms, destination, tenant FROM actions WHERE id = ?";
        let known = |row: &Row<'_>| {
            let (key, key_prefix) = (row.get(1)?, row.get(2)?);
            let (due_from_ms, due_before_ms) = (row.get(3)?, row.get(4)?);
            let (destination, tenant) = (row.get(5)?, row.get(6)?);
            Ok((row.get::<_, Kind>(0)?, Filter { key, key_prefix, due_from_ms, due_before_ms, destination, tenant }))
        };
        if let Some((of_kind, of)) = cached(&self.db, text)?.query_row([id], known).optional()? {
            return Ok(Some(of_kind == *kind && of == *filter));
        }
        let text = "INSERT INTO actions (id, kind, key, key_prefix, due_from_ms, due_before_ms, through, began_ms, \
                    at_ms, at_seq, changed, too_late, destination, tenant) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)";
        let Filter { key, key_prefix, due_from_ms, due_before_ms, destination, tenant } = filter;
        let (of, at) =
            (params![id, kind, key, key_prefix, due_from_ms, due_before_ms], params![through, now_ms, at.0, at.1]);
        let values = [of, at, params![destination, tenant]].concat();
        execute(&self.db, text, values.as_slice())?;
        let ended = "DELETE FROM actions WHERE ended_ms IS NOT NULL AND n <= \
                     (SELECT n FROM actions WHERE ended_ms IS NOT NULL ORDER BY n DESC LIMIT 1 OFFSET ?)";
        execute(&self.db, ended, [KEPT])?;
        Ok(None)
    }

    /// Stores the progress of an action, and its end if it has ended.
    pub(crate) fn put_progress(&mut self, action: &Action, ended_ms: Option<i64>) -> Result<()> {
        let text = "UPDATE actions SET at_ms = ?, at_seq = ?, changed = ?, too_late = ?, ended_ms = ? WHERE id = ?";
        let Action { id, at, changed, too_late, .. } = action;
        execute(&self.db, text, params![at.0, at.1, *changed as i64, *too_late as i64, ended_ms, id]).map(drop)
    }

    /// The next messages in `waiting` that match an action, only from this lane if one is given: by due time, or share by
    /// share if the action is about some. The action is then past them. `true`: there may be more. `look` and `most`: how
    /// many rows to look at, and how many messages to find.
    pub(crate) fn matches(
        &self,
        action: &mut Action,
        lane: Option<i64>,
        (look, most): (usize, usize),
    ) -> Result<(Vec<Position>, bool)> {
        let Action { filter, through, share, at, .. } = &*action;
        let shares = self.shares_of(filter)?;
        let after = match shares {
            None => "(due_ms, seq) > (?2, ?3) AND due_ms < ?5 ORDER BY due_ms, seq",
            Some(_) => "(share, due_ms, seq) > (?1, ?2, ?3) AND share <= ?4 ORDER BY share, due_ms, seq",
        };
        let text = format!("SELECT due_ms, seq, lane, ifnull(share, 0) FROM waiting WHERE {after} LIMIT ?6");
        let mut select = cached(&self.db, &text)?;
        let before_ms = filter.due_before_ms.unwrap_or(i64::MAX);
        let (mut found, mut count, mut last) = (Vec::new(), 0, (*share, *at));
        for (first, end) in shares.unwrap_or_else(|| vec![(0, 0)]) {
            if count == look || found.len() == most {
                break; // the next part goes on in the range before
            }
            last = last.max((first, (i64::MIN, i64::MIN)));
            let (share, (due_ms, seq)) = last;
            let mut waiting = select.query(params![share, due_ms, seq, end, before_ms, (look - count) as i64])?;
            while found.len() < most
                && let Some(row) = waiting.next()?
            {
                count += 1;
                let (share, at): (i64, Position) = (row.get(3)?, (row.get(0)?, row.get(1)?));
                last = (share, at);
                let is_in_lane = lane.is_none() || row.get::<_, Option<i64>>(2)?.map(|it| lane_in(share, it)) == lane;
                let is_of_it = is_in_lane && at.1 <= *through && filter.takes_due(at.0);
                if is_of_it && (!filter.asks_key() || self.takes(action, at.1)?) {
                    found.push(at);
                }
            }
        }
        (action.share, action.at) = last;
        let may_be_more = count == look || found.len() == most;
        Ok((found, may_be_more))
    }

    /// The shares of a filter: the first and the last of each range, in order. `None`: all.
    fn shares_of(&self, filter: &Filter) -> Result<Option<Vec<(i64, i64)>>> {
        let number = |name: &String| Ok::<_, rusqlite::Error>(number_of(&self.db, name)?.unwrap_or(NOT_KNOWN));
        let tenant = filter.tenant.as_ref().map(number).transpose()?;
        let mut to: Vec<i64> = match &filter.destination {
            Some(name) => self.destination(name).map(|it| it.share).into_iter().collect(),
            None if tenant.is_none() => return Ok(None),
            None => self.all_destinations().map(|it| it.share).chain([0]).collect(),
        };
        to.sort_unstable();
        let ranges = |to| match tenant {
            Some(tenant) => vec![(share_of(to, tenant), share_of(to, tenant))],
            None => vec![(to, to), tenants_at(to)],
        };
        Ok(Some(to.into_iter().flat_map(ranges).collect()))
    }

    fn takes(&self, action: &Action, seq: i64) -> Result<bool> {
        let mut select = cached(&self.db, "SELECT key FROM messages WHERE seq = ?")?;
        let takes = |row: &Row<'_>| Ok(action.filter.takes_key(row.get_ref(0)?.as_str_or_null()?));
        Ok(select.query_row([seq], takes).optional()?.unwrap_or(false))
    }

    /// Actions that have not ended, in order.
    pub(crate) fn running_actions(&self) -> Result<Vec<Action>> {
        let text = "SELECT id, kind, key, key_prefix, due_from_ms, due_before_ms, through, at_ms, at_seq, changed, too_late, \
                destination, tenant FROM actions WHERE ended_ms IS NULL ORDER BY n";
        let action = |row: &Row<'_>| {
            Ok(Action {
                id: row.get(0)?,
                kind: row.get(1)?,
                filter: Filter {
                    key: row.get(2)?,
                    key_prefix: row.get(3)?,
                    due_from_ms: row.get(4)?,
                    due_before_ms: row.get(5)?,
                    destination: row.get(11)?,
                    tenant: row.get(12)?,
                },
                through: row.get(6)?,
                at: (row.get(7)?, row.get(8)?),
                share: 0,
                changed: row.get::<_, i64>(9)? as u64,
                too_late: row.get::<_, i64>(10)? as u64,
            })
        };
        Ok(rows(&self.db, text, [], action)?)
    }

    /// The dead letters of messages, with letter numbers after `after` and up to `through`. Each item has the letter's
    /// number and the message's number.
    pub(crate) fn letters_of_messages(&self, after: i64, through: i64, limit: usize) -> Result<Vec<(i64, i64)>> {
        let text = "SELECT n, line FROM dead_letters WHERE source = 'delivery' AND n > ? AND n <= ? ORDER BY n LIMIT ?";
        Ok(rows(&self.db, text, [after, through, limit as i64], |row| row.try_into())?)
    }

    /// The number of messages that an action has changed, and the number for which it came too late.
    #[cfg(test)]
    pub(crate) fn progress_of(&self, id: &str) -> rusqlite::Result<(u64, u64)> {
        let text = "SELECT changed, too_late FROM actions WHERE id = ?";
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
        self.db.query_row(text, [id], row)
    }
}

/// The most keys that may be paused. Each takes some memory while its messages wait.
pub const MOST_PAUSED_KEYS: i64 = 10_000;

impl Store {
    /// The lanes of the keys that are paused.
    pub(crate) fn paused_lanes(&self) -> Result<Vec<i64>> {
        Ok(rows(&self.db, "SELECT lane FROM paused_keys", [], |row| row.get(0))?)
    }

    /// Notes that this key is paused. `false`: too many keys are paused.
    pub(crate) fn pause_key(&mut self, lane: i64, key: &str, now_ms: i64) -> Result<bool> {
        pause_key(&self.db, lane, key, now_ms)
    }

    /// Notes that the keys of this lane are not paused any more.
    pub(crate) fn resume_lane(&mut self, lane: i64) -> Result<()> {
        resume_lane(&self.db, lane)
    }
}

/// Adds a paused key. `false`: too many keys are paused. If the key is paused already, its old time stays.
pub(in crate::store) fn pause_key(db: &Connection, lane: i64, key: &str, now_ms: i64) -> Result<bool> {
    if cached(db, "SELECT 1 FROM paused_keys WHERE lane = ?")?.exists([lane])? {
        return Ok(true);
    }
    let count: i64 = cached(db, "SELECT count(*) FROM paused_keys")?.query_row([], |row| row.get(0))?;
    if count >= MOST_PAUSED_KEYS {
        return Ok(false);
    }
    execute(db, "INSERT INTO paused_keys VALUES (?, ?, ?)", params![lane, key, now_ms])?;
    Ok(true)
}

pub(in crate::store) fn resume_lane(db: &Connection, lane: i64) -> Result<()> {
    execute(db, "DELETE FROM paused_keys WHERE lane = ?", [lane]).map(drop)
}

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// All messages.
    All,
    /// A key.
    Key,
    /// A named destination.
    Destination,
    /// A tenant.
    Tenant,
}

impl PartKind {
    const ALL: [(Self, &'static str); 4] =
        [(Self::All, "all"), (Self::Key, "key"), (Self::Destination, "destination"), (Self::Tenant, "tenant")];

    fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.1 == word).map(|it| it.0)
    }
}

impl Store {
    /// Notes when the pause of a part ends by itself; `None`: never, or it is over.
    pub(crate) fn put_pause_end(&mut self, part: PartKind, name: &str, until_ms: Option<i64>) -> Result<()> {
        let changed = match until_ms {
            Some(until_ms) => {
                let text = "INSERT OR REPLACE INTO pause_ends VALUES (?, ?, ?)";
                execute(&self.db, text, params![part.word(), name, until_ms])?
            }
            None => execute(&self.db, "DELETE FROM pause_ends WHERE part = ? AND name = ?", [part.word(), name])?,
        };
        if changed > 0 {
            self.first_pause_end_ms = first_pause_end_ms(&self.db)?;
        }
        Ok(())
    }

    /// When the first pause ends by itself.
    pub(crate) fn first_pause_end_ms(&self) -> Option<i64> {
        self.first_pause_end_ms
    }

    /// Takes some pauses whose end has come: they have none any more.
    pub(crate) fn take_ended_pauses(&mut self, now_ms: i64, most: usize) -> Result<Vec<(PartKind, String)>> {
        if self.first_pause_end_ms.is_none_or(|end_ms| end_ms > now_ms) {
            return Ok(Vec::new());
        }
        let text = "DELETE FROM pause_ends WHERE (part, name) IN \
                    (SELECT part, name FROM pause_ends WHERE until_ms <= ? ORDER BY until_ms LIMIT ?) RETURNING part, name";
        let ended = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?));
        let ended = rows(&self.db, text, params![now_ms, most as i64], ended)?;
        self.first_pause_end_ms = first_pause_end_ms(&self.db)?;
        Ok(ended.into_iter().filter_map(|(part, name)| Some((PartKind::of(&part)?, name))).collect())
    }
}

pub(in crate::store) fn first_pause_end_ms(db: &Connection) -> Result<Option<i64>> {
    Ok(cached(db, "SELECT min(until_ms) FROM pause_ends")?.query_row([], |row| row.get(0))?)
}
