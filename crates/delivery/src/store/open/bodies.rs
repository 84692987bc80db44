//! The payloads of messages, and the other parts of a message that its name does not have.

use std::collections::HashMap;

use rusqlite::types::{FromSqlError, ToSqlOutput};
use rusqlite::{Connection, OptionalExtension};

use crate::message::recurrence::Recurrence;
use crate::message::shares::tenant_in;
use crate::message::{Body, Extras, Message};
use crate::store::Store;
use crate::store::sql::{Broken, Result, cached};
use crate::store::tables::events::write_waits;
use crate::store::tables::tenants::name_of;

impl Store {
    /// Reads these messages with their payloads, by number. The caller limits how many there are, and their size.
    pub(crate) fn bodies(&self, seqs: &[i64]) -> Result<HashMap<i64, Message>> {
        let text = "SELECT m.key, m.id, m.due_ms, b.payload, b.expires_ms, b.traceparent, b.latest_ms, m.again, \
                b.recurrence, m.first, ifnull(b.share, 0) FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.seq = ?";
        let mut select = cached(&self.db, text)?;
        let mut found = HashMap::with_capacity(seqs.len());
        let mut tenants = HashMap::new();
        for seq in seqs {
            let message = select
                .query_row([seq], |row| {
                    let payload = row.get_ref(3)?;
                    let is_json = matches!(payload, rusqlite::types::ValueRef::Text(_));
                    let (key, id) = (row.get_ref(0)?.as_str_or_null()?, row.get_ref(1)?.as_str()?);
                    let traceparent = row.get_ref(5)?.as_str_or_null()?.map(Into::into);
                    let (recurrence, until) = match row.get_ref(8)?.as_str_or_null()? {
                        None => (None, None),
                        Some("") => (None, self.until_of(*seq)?.map(Box::new)),
                        Some(rule) => (Some(Box::new(recurrence(rule)?)), None),
                    };
                    let (expires_ms, latest_ms, again, first) = (row.get(4)?, row.get(6)?, row.get(7)?, row.get(9)?);
                    let share = row.get(10)?;
                    let destination = self.destination_numbered(share).map(|it| it.name.clone());
                    let tenant = match tenant_in(share) {
                        0 => None,
                        number => match tenants.get(&number).cloned() {
                            None => {
                                let found = name_of(&self.db, number)?;
                                tenants.insert(number, found.clone());
                                found
                            }
                            Some(known) => known,
                        },
                    };
                    let extras = Extras {
                        expires_ms,
                        traceparent,
                        latest_ms,
                        again,
                        first,
                        destination,
                        tenant,
                        share,
                        until,
                        recurrence,
                    };
                    let body = Body::new(key, id, payload.as_bytes()?, is_json).with_extras(extras);
                    Ok(Message { body, due_ms: row.get(2)?, delay_ms: None })
                })
                .optional()?
                .ok_or_else(|| Broken::Contradiction(format!("message {seq} is open, and has no payload")))?;
            found.insert(*seq, message);
        }
        Ok(found)
    }

    /// The content of an open message.
    pub(crate) fn open_message(&self, seq: i64) -> Result<Message> {
        Ok(self.bodies(&[seq])?.remove(&seq).expect("it was read"))
    }
}

fn recurrence(kept: &str) -> rusqlite::Result<Recurrence> {
    Recurrence::from_json(kept).ok_or_else(|| FromSqlError::Other("it is no rule".into()).into())
}

/// Writes each payload under its number. Returns whether a message waits for an event.
pub(in crate::store) fn write<'a>(db: &Connection, bodies: impl IntoIterator<Item = (i64, &'a Body)>) -> Result<bool> {
    let text = "INSERT INTO bodies (seq, payload, expires_ms, traceparent, latest_ms, recurrence, share) VALUES (?, ?, ?, ?, ?, ?, ?)";
    let mut insert = cached(db, text)?;
    let mut do_wait = false;
    for (seq, body) in bodies {
        let payload = match std::str::from_utf8(body.payload()) {
            Ok(json) if body.is_json() => ToSqlOutput::from(json),
            _ => ToSqlOutput::from(body.payload()),
        };
        let latest_ms = body.extras().and_then(|extras| extras.latest_ms);
        let until = body.until().zip(body.key());
        let rule = body.recurrence().map(Recurrence::to_json).or_else(|| until.map(|_| String::new()));
        let share = Some(body.share()).filter(|share| *share != 0);
        insert.execute((seq, payload, body.expires_ms(), body.traceparent(), latest_ms, rule, share))?;
        if let Some((until, key)) = until {
            write_waits(db, seq, key, until)?;
            do_wait = true;
        }
    }
    Ok(do_wait)
}
