//! The payloads of messages, and the other parts of a message that its name does not have.

use std::collections::HashMap;

use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::message::recurrence::Recurrence;
use crate::message::{Body, Extras, Message};
use crate::store::Store;
use crate::store::sql::{Broken, Result, cached};

impl Store {
    /// Reads these messages with their payloads, by number. The caller limits how many there are, and their size.
    pub(crate) fn bodies(&self, seqs: &[i64]) -> Result<HashMap<i64, Message>> {
        let text = "SELECT m.key, m.id, m.due_ms, b.payload, b.expires_ms, b.traceparent, b.latest_ms, m.again, \
                b.recurrence FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.seq = ?";
        let mut select = cached(&self.db, text)?;
        let mut found = HashMap::with_capacity(seqs.len());
        for seq in seqs {
            let message = select
                .query_row([seq], |row| {
                    let payload = row.get_ref(3)?;
                    let is_json = matches!(payload, rusqlite::types::ValueRef::Text(_));
                    let (key, id) = (row.get_ref(0)?.as_str_or_null()?, row.get_ref(1)?.as_str()?);
                    let traceparent = row.get_ref(5)?.as_str_or_null()?.map(Into::into);
                    let recurrence =
                        row.get_ref(8)?.as_str_or_null()?.map(|text| recurrence(text).map(Box::new)).transpose()?;
                    let (expires_ms, latest_ms, again) = (row.get(4)?, row.get(6)?, row.get(7)?);
                    let extras = Extras { expires_ms, traceparent, latest_ms, again, recurrence };
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

    /// Replaces the rule of a recurring message.
    pub(crate) fn put_rule(&mut self, seq: i64, rule: &Recurrence) -> Result<()> {
        cached(&self.db, "UPDATE bodies SET recurrence = ? WHERE seq = ?")?.execute(params![rule.to_json(), seq])?;
        Ok(())
    }
}

fn recurrence(kept: &str) -> rusqlite::Result<Recurrence> {
    Recurrence::from_json(kept).ok_or_else(|| FromSqlError::Other("it is no rule".into()).into())
}

/// Writes each payload under its number.
pub(in crate::store) fn write<'a>(db: &Connection, bodies: impl IntoIterator<Item = (i64, &'a Body)>) -> Result<()> {
    let text =
        "INSERT INTO bodies (seq, payload, expires_ms, traceparent, latest_ms, recurrence) VALUES (?, ?, ?, ?, ?, ?)";
    let mut insert = cached(db, text)?;
    for (seq, body) in bodies {
        insert.raw_bind_parameter(1, seq)?;
        match std::str::from_utf8(body.payload()) {
            Ok(json) if body.is_json() => insert.raw_bind_parameter(2, json)?,
            _ => insert.raw_bind_parameter(2, body.payload())?,
        }
        insert.raw_bind_parameter(3, body.expires_ms())?;
        insert.raw_bind_parameter(4, body.traceparent())?;
        insert.raw_bind_parameter(5, body.extras().and_then(|extras| extras.latest_ms))?;
        insert.raw_bind_parameter(6, body.recurrence().map(Recurrence::to_json))?;
        insert.raw_execute()?;
    }
    Ok(())
}
