//! The rows of a hand-off (rule S3): messages that were read and checked elsewhere, and go to a deliverer.
//!
//! A row has one of four kinds. Empty fields are null:
//!
//! | | `id`, `key` | `due_ms`, `delay_ms` | `payload`, `is_json` | `source`, `line` | `reason`, `allowed` |
//! |---|---|---|---|---|---|
//! | a message | its name | the due time; also the delay, if given | the content to deliver | its place in the input | |
//! | a cancel | its name | | | its place in the input | |
//! | a reschedule | its name | the due time | | its place in the input | |
//! | a dead letter | | | the original record | its place in the input | the reason, and the allowed values |
//!
//! A recurring message is written as a dead letter (S2): nothing but a deliverer's own store makes its occurrences.
//!
//! Further columns:
//!
//! - `expires_ms`, `traceparent`, `destination` and `tenant`: optional parts of a message.
//! - `again`: another deliverer may have delivered the message before it was lost with its disk. The first attempt
//!   here is marked as a repeat.
//! - `moved_to_ms`: the present due time of a message that was rescheduled before it came here. Its content still has
//!   the first due time.
//! - `partition`: only in a written stream. The partition of the row (`message/partition.rs`); for a dead letter, its
//!   line modulo 64. The hold uses it, and no deliverer reads it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;

use crate::base::display::{cut, quoted};
use crate::base::error::BadRecord;
use crate::base::times::due_in_range;
use crate::message::fields::Request;
use crate::message::incoming::Origin;
use crate::message::parsed::Parsed;
use crate::message::partition::{PARTITIONS, partition_of_incoming, partition_of_name};
use crate::message::record::record_of_incoming;
use crate::message::{Body, Cancel, Extras, Message, Reschedule, check_name, checked};

/// How long a cancel is remembered. A cancel passes at once, but the hold may keep its message for this long (D7).
pub(crate) const KEEP_CANCELS_DAYS: u32 = 400;

/// The name of each column, its type, and whether it may be null.
const COLUMNS: [(&str, DataType, bool); 16] = [
    ("id", DataType::Utf8, true),
    ("key", DataType::Utf8, true),
    ("due_ms", DataType::Int64, true),
    ("delay_ms", DataType::Float64, true),
    ("payload", DataType::Binary, true),
    ("is_json", DataType::Boolean, true),
    ("expires_ms", DataType::Int64, true),
    ("traceparent", DataType::Utf8, true),
    ("destination", DataType::Utf8, true),
    ("tenant", DataType::Utf8, true),
    ("source", DataType::Utf8, true),
    ("line", DataType::Int64, true),
    ("reason", DataType::Utf8, true),
    ("allowed", DataType::Utf8, true),
    ("moved_to_ms", DataType::Int64, true),
    ("again", DataType::Boolean, false),
];

/// Writes the items as an Arrow IPC stream of one batch. Each row also has its partition. The original record of a
/// message is left out.
#[must_use]
pub fn write_stream(items: &[Parsed]) -> Vec<u8> {
    fn texts<'a>(items: &[&'a Parsed], of: impl Fn(&'a Parsed) -> Option<&'a str>) -> ArrayRef {
        Arc::new(items.iter().copied().map(of).collect::<StringArray>())
    }
    fn message(item: &Parsed) -> Option<&Message> {
        if let Parsed::Message(incoming) = item { Some(&incoming.message) } else { None }
    }
    fn bad(item: &Parsed) -> Option<&BadRecord> {
        if let Parsed::Bad(bad, _) = item { Some(bad) } else { None }
    }
    fn payload_of(item: &Parsed) -> Option<&[u8]> {
        match item {
            Parsed::Message(incoming) => Some(incoming.message.body.payload()),
            Parsed::Cancel(..) | Parsed::Reschedule(..) | Parsed::Event(..) => None,
            Parsed::Bad(_, origin) => Some(origin.record()),
        }
    }
    fn due_ms(item: &Parsed) -> Option<i64> {
        match item {
            Parsed::Message(incoming) => Some(incoming.message.due_ms),
            Parsed::Reschedule(to, _) => Some(to.due_ms),
            Parsed::Cancel(..) | Parsed::Event(..) | Parsed::Bad(..) => None,
        }
    }
    let items: Vec<_> = items.iter().map(letter_if_it_stays).collect();
    let items: Vec<&Parsed> = items.iter().map(AsRef::as_ref).collect();
    let messages = || items.iter().copied().map(message);
    let columns: Vec<ArrayRef> = vec![
        texts(&items, |item| match item {
            Parsed::Message(incoming) => Some(incoming.message.body.id()),
            Parsed::Cancel(cancel, _) => Some(&cancel.id),
            Parsed::Reschedule(to, _) => Some(&to.id),
            Parsed::Event(..) | Parsed::Bad(..) => None,
        }),
        texts(&items, |item| match item {
            Parsed::Message(incoming) => incoming.message.body.key(),
            Parsed::Cancel(cancel, _) => cancel.key.as_deref(),
            Parsed::Reschedule(to, _) => to.key.as_deref(),
            Parsed::Event(..) | Parsed::Bad(..) => None,
        }),
        Arc::new(items.iter().copied().map(due_ms).collect::<Int64Array>()),
        Arc::new(messages().map(|it| it.and_then(|it| it.delay_ms)).collect::<Float64Array>()),
        Arc::new(items.iter().copied().map(payload_of).collect::<BinaryArray>()),
        Arc::new(messages().map(|it| it.map(|it| it.body.is_json())).collect::<BooleanArray>()),
        Arc::new(messages().map(|it| it.and_then(Message::expires_ms)).collect::<Int64Array>()),
        texts(&items, |item| message(item).and_then(Message::traceparent)),
        texts(&items, |item| message(item).and_then(|it| it.body.destination())),
        texts(&items, |item| message(item).and_then(|it| it.body.tenant())),
        texts(&items, |item| item.origin().map(|origin| &*origin.source)),
        Arc::new(items.iter().map(|item| item.origin().map(|origin| origin.line as i64)).collect::<Int64Array>()),
        texts(&items, |item| bad(item).map(|bad| bad.reason.as_str())),
        texts(&items, |item| bad(item).map(|bad| bad.allowed.as_str())),
        Arc::new(Int64Array::from(vec![None; items.len()])), // the rows come from an input: none was moved
        Arc::new(BooleanArray::from(vec![false; items.len()])), // or sent before
        Arc::new(items.iter().map(|item| Some(i32::from(partition_of_item(item)))).collect::<Int32Array>()),
    ];
    let mut fields = COLUMNS.map(|(name, kind, is_nullable)| Field::new(name, kind, is_nullable)).to_vec();
    fields.push(Field::new("partition", DataType::Int32, false));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("of these types");
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).expect("memory takes it");
    writer.write(&batch).expect("memory takes it");
    writer.into_inner().expect("memory takes it")
}

/// A dead letter, if the message recurs or waits for an event, or if it is an event: these belong to one store.
fn letter_if_it_stays(item: &Parsed) -> Cow<'_, Parsed> {
    let letter = |what: &str, origin| {
        let allowed = "messages with due or delay_ms; give others to the store of a deliverer, by POST /messages of tickwheel serve";
        Cow::Owned(Parsed::Bad(BadRecord::new(format!("{what} does not go through Spark"), allowed), origin))
    };
    match item {
        Parsed::Message(incoming) if incoming.message.recurs() || incoming.message.body.until().is_some() => {
            let what = if incoming.message.recurs() { "a recurring message" } else { "a message with until_event" };
            let (source, line) =
                incoming.origin.as_ref().map_or(("".into(), 0), |it| (Arc::clone(&it.source), it.line));
            letter(what, Origin { source, line, record: Some(record_of_incoming(incoming).into()) })
        }
        Parsed::Event(_, origin) => letter("an event", origin.clone()),
        _ => Cow::Borrowed(item),
    }
}

fn partition_of_item(item: &Parsed) -> u8 {
    match item {
        Parsed::Message(incoming) => partition_of_incoming(incoming),
        Parsed::Cancel(cancel, _) => partition_of_name(cancel.key.as_deref(), &cancel.id),
        Parsed::Reschedule(to, _) => partition_of_name(to.key.as_deref(), &to.id),
        Parsed::Event(_, origin) | Parsed::Bad(_, origin) => (origin.line % u64::from(PARTITIONS)) as u8,
    }
}

/// Reads the items of a batch. A row that no deliverer can take becomes a bad record. About 1 µs a row.
///
/// # Errors
/// The columns are not the columns of a hand-off.
pub fn read_hand_off(batch: &RecordBatch, max_payload: usize) -> Result<impl Iterator<Item = Parsed>, BadRecord> {
    check_columns(batch.schema_ref())?;
    let rows = Rows::of(batch);
    let mut source: Arc<str> = "hand-off".into();
    Ok((0..batch.num_rows()).map(move |at| {
        let name = text_at(rows.source, at).filter(|name| !name.is_empty()).unwrap_or("hand-off");
        if *source != *name {
            source = name.into();
        }
        let line = number_at(rows.line, at).and_then(|line| u64::try_from(line).ok()).unwrap_or(0);
        let origin = |record| Origin { source: Arc::clone(&source), line, record };
        rows.item(at, max_payload, origin)
    }))
}

fn check_columns(schema: &Schema) -> Result<(), BadRecord> {
    let fields = schema.fields();
    let fits = fields.len() == COLUMNS.len()
        && fields.iter().zip(&COLUMNS).all(|(field, (name, kind, is_nullable))| {
            field.name() == name && field.data_type() == kind && field.is_nullable() == *is_nullable
        });
    if fits {
        return Ok(());
    }
    let names = fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let allowed = COLUMNS.map(|(name, ..)| quoted(name, 60)).join(", ");
    let reason = format!("the columns are {}", cut(&names, 200));
    Err(BadRecord::new(reason, format!("those of a hand-off: [{allowed}]")))
}

/// The columns of a batch. Their types were checked.
struct Rows<'a> {
    id: &'a StringArray,
    key: &'a StringArray,
    due_ms: &'a Int64Array,
    delay_ms: &'a Float64Array,
    payload: &'a BinaryArray,
    is_json: &'a BooleanArray,
    expires_ms: &'a Int64Array,
    traceparent: &'a StringArray,
    destination: &'a StringArray,
    tenant: &'a StringArray,
    source: &'a StringArray,
    line: &'a Int64Array,
    reason: &'a StringArray,
    allowed: &'a StringArray,
    moved_to_ms: &'a Int64Array,
    again: &'a BooleanArray,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch) -> Self {
        Self {
            id: batch.column(0).as_string(),
            key: batch.column(1).as_string(),
            due_ms: batch.column(2).as_primitive(),
            delay_ms: batch.column(3).as_primitive(),
            payload: batch.column(4).as_binary(),
            is_json: batch.column(5).as_boolean(),
            expires_ms: batch.column(6).as_primitive(),
            traceparent: batch.column(7).as_string(),
            destination: batch.column(8).as_string(),
            tenant: batch.column(9).as_string(),
            source: batch.column(10).as_string(),
            line: batch.column(11).as_primitive(),
            reason: batch.column(12).as_string(),
            allowed: batch.column(13).as_string(),
            moved_to_ms: batch.column(14).as_primitive(),
            again: batch.column(15).as_boolean(),
        }
    }

    fn item(&self, at: usize, max_payload: usize, origin: impl Fn(Option<Bytes>) -> Origin) -> Parsed {
        let data = if self.payload.is_valid(at) { self.payload.value(at) } else { &[] };
        if let Some(reason) = text_at(self.reason, at) {
            let bad = BadRecord::new(reason, text_at(self.allowed, at).unwrap_or(""));
            return Parsed::Bad(bad, origin(Some(Bytes::copy_from_slice(data))));
        }
        let moved_to_ms = number_at(self.moved_to_ms, at).map(|due_ms| due_in_range(due_ms, "moved_to_ms")).transpose();
        match (self.request(at, data, max_payload), moved_to_ms) {
            (Err(bad), _) | (_, Err(bad)) => Parsed::Bad(bad, origin(Some(Bytes::copy_from_slice(data)))),
            (read, Ok(moved_to_ms)) => {
                let mut item = Parsed::of(read, true, || origin(None));
                if let Parsed::Message(incoming) = &mut item {
                    incoming.redelivered = self.again.value(at);
                    incoming.moved_to_ms = moved_to_ms;
                }
                item
            }
        }
    }

    fn request(&self, at: usize, data: &[u8], max_payload: usize) -> Result<Request, BadRecord> {
        let Some(id) = text_at(self.id, at) else {
            return Err(BadRecord::new("id is missing", "id: text, not empty"));
        };
        let key = text_at(self.key, at);
        let Some(due_ms) = number_at(self.due_ms, at) else {
            check_name(key, id)?;
            let (id, key) = (id.into(), key.map(Into::into));
            return Ok(Request::Cancel(Cancel { id, key, keep_days: KEEP_CANCELS_DAYS }));
        };
        if self.payload.is_null(at) {
            check_name(key, id)?;
            let due_ms = due_in_range(due_ms, "due_ms")?;
            return Ok(Request::Reschedule(Reschedule { id: id.into(), key: key.map(Into::into), due_ms }));
        }
        checked(self.message(at, (key, id), data, due_ms), max_payload).map(Request::Message)
    }

    fn message(&self, at: usize, (key, id): (Option<&str>, &str), data: &[u8], due_ms: i64) -> Message {
        let is_json = self.is_json.is_valid(at) && self.is_json.value(at);
        let delay_ms = self.delay_ms.is_valid(at).then(|| self.delay_ms.value(at));
        let traceparent = text_at(self.traceparent, at).map(Into::into);
        let destination = text_at(self.destination, at).map(Into::into);
        let tenant = text_at(self.tenant, at).map(Into::into);
        let expires_ms = number_at(self.expires_ms, at);
        let extras = Extras { expires_ms, traceparent, destination, tenant, ..Extras::default() };
        Message { body: Body::new(key, id, data, is_json).with_extras(extras), due_ms, delay_ms }
    }
}

fn text_at(texts: &StringArray, at: usize) -> Option<&str> {
    texts.is_valid(at).then(|| texts.value(at))
}

fn number_at(numbers: &Int64Array, at: usize) -> Option<i64> {
    numbers.is_valid(at).then(|| numbers.value(at))
}

#[cfg(test)]
mod tests;
