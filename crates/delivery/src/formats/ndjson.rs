//! Reads NDJSON: one JSON object per line. A blank line is not a record. A name that occurs twice in an object is an
//! error.
//!
//! Example: the line `{"id": "a", "delay_ms": 5, "payload": [1.50]}`, read at time 0, is a message due at 5 ms with
//! the payload `[1.50]`. The text `oops` in line 2 is a bad record of line 2, and the record keeps these four bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::base::error::BadRecord;
use crate::base::json::{Refused, check_depth, check_surrogates, without_line_ends};
use crate::formats::lines::{Block, Line};
use crate::message::columns::{DUE_AT, EXPIRES_AT, VALUES};
use crate::message::fields::{Fields, Payload, Request, Schema, Value};
use crate::message::incoming::Origin;
use crate::message::parsed::Parsed;

const ALLOWED: &str = "one JSON object per line, each name once";

/// The most digits of a decoded integer. A longer integer is an attack or an error.
const MAX_DIGITS: usize = 4300;

/// A reader of one input.
#[derive(Clone, Debug)]
pub struct Ndjson<'a> {
    /// The name of the input, for dead letters.
    pub source: Arc<str>,
    /// The schema of its records.
    pub schema: &'a Schema,
    /// The wall time from which a `delay_ms` counts; `None` in a replay.
    pub now_ns: Option<i64>,
    /// Lines up to this one are skipped, because an earlier run has accepted them.
    pub after: u64,
    /// Whether messages keep their origin. A connection gets its answers itself and needs no dead letters.
    pub keeps_origin: bool,
}

impl Ndjson<'_> {
    /// Reads the items of some lines, in order. About 1 µs each.
    pub fn read(&self, block: &Block<Bytes>) -> impl Iterator<Item = Parsed> {
        block.lines(self.schema.max_record()).filter_map(|line| {
            let data = trim(line.data);
            if data.is_empty() || line.number <= self.after {
                return None;
            }
            let origin = || self.origin(block.bytes.slice_ref(data), line.number);
            Some(Parsed::of(self.request(&line), self.keeps_origin, origin))
        })
    }

    /// Reads the bytes of a single record, for example a Kafka message. `line` is the place of the record in its
    /// source.
    #[must_use]
    pub fn read_value(&self, bytes: &Bytes, line: u64) -> Parsed {
        let block = Block::whole(bytes.clone());
        let mut items = self.read(&block);
        let first = items.next();
        let count = usize::from(first.is_some()) + items.count();
        match first {
            Some(mut item) if count == 1 => {
                if let Some(origin) = item.origin_mut() {
                    origin.line = line;
                }
                item
            }
            _ => {
                let bad = BadRecord::new(format!("the value holds {count} records"), "one JSON object per value");
                Parsed::Bad(bad, self.origin(bytes.clone(), line))
            }
        }
    }

    /// Reads one record, which may extend over several lines. The caller has checked its size.
    #[must_use]
    pub fn read_object(&self, bytes: &Bytes) -> Parsed {
        let line = Line { number: 1, data: bytes, size: 0 };
        Parsed::of(self.request(&line), self.keeps_origin, || self.origin(bytes.clone(), 1))
    }

    fn request(&self, line: &Line<'_>) -> Result<Request, BadRecord> {
        let text = line.text(self.schema.max_record())?;
        self.schema.check(&fields_of(text, self.schema)?, self.now_ns)
    }

    fn origin(&self, record: Bytes, line: u64) -> Origin {
        Origin { source: Arc::clone(&self.source), line, record: Some(record) }
    }
}

/// The fields of one object.
///
/// # Errors
/// The text is not a JSON object, or has a name twice.
pub(crate) fn fields_of<'a>(text: &'a str, schema: &Schema) -> Result<Fields<'a>, BadRecord> {
    let refused = |why: Refused| match why {
        Refused::TooDeep => BadRecord::new("the JSON is nested too deep", "a few hundred levels"),
        Refused::Syntax(what) => BadRecord::new(format!("not a JSON object: {what}"), ALLOWED),
    };
    check_depth(text).map_err(refused)?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let found = AnObject(schema).deserialize(&mut parser).and_then(|found| parser.end().map(|()| found));
    let Found { values, payload, others, is_double } = found.map_err(|error| refused(Refused::at(text, &error)))?;
    check_surrogates(text).map_err(refused)?;
    let mut read: [Value<'_>; VALUES] = Default::default();
    for (at, (value, raw)) in read.iter_mut().zip(values).enumerate() {
        let read = if [DUE_AT, EXPIRES_AT].contains(&at) { instant_of } else { value_of };
        *value = raw.map_or(Ok(Value::Absent), read).map_err(refused)?;
    }
    if is_double {
        return Err(BadRecord::new("a name occurs twice in the object", ALLOWED));
    }
    let payload = payload.map(|raw| Payload { bytes: without_line_ends(raw.as_bytes()), is_json: true });
    let others = others.into_iter().map(|(name, raw)| (name, without_line_ends(raw.as_bytes())));
    Ok(Fields { others: others.collect(), ..Fields::of(read, payload) })
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}

/// The members of an object, not yet decoded.
#[derive(Default)]
struct Found<'a> {
    /// In the order of `Columns::values`.
    values: [Option<&'a str>; VALUES],
    payload: Option<&'a str>,
    others: SmallVec<[(Cow<'a, str>, &'a str); 4]>,
    is_double: bool,
}

struct AnObject<'a>(&'a Schema);

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for AnObject<'_> {
    type Value = Found<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AnObject<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        /// If an object has more names than this, the names are compared by a set. Comparing each with each would
        /// take too long.
        const MANY: usize = 16;
        let columns = &self.0.columns;
        let names = columns.values();
        let mut found = Found::default();
        let mut many: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Name(name)) = members.next_key()? {
            let raw = members.next_value::<&RawValue>()?.get();
            let mut is_known = false;
            for (known, value) in names.iter().zip(&mut found.values) {
                if name == *known {
                    is_known = true;
                    found.is_double |= value.replace(raw).is_some();
                }
            }
            if name == columns.payload() {
                is_known = true;
                found.is_double |= found.payload.replace(raw).is_some();
            }
            if is_known || found.is_double {
                continue; // a record with a name twice is refused, so its other fields are not needed
            }
            let others = &mut found.others;
            if others.len() < MANY {
                found.is_double = others.iter().any(|(other, _)| *other == name);
            } else {
                if many.is_empty() {
                    many.extend(others.iter().map(|(other, _)| other.clone()));
                }
                found.is_double = !many.insert(name.clone());
            }
            others.push((name, raw));
        }
        Ok(found)
    }
}

/// The value of a field that means a time. A number with an exponent is kept as text, which the schema refuses: some
/// programs round large numbers so, and the time may be hours away.
fn instant_of(raw: &str) -> Result<Value<'_>, Refused> {
    match value_of(raw)? {
        Value::Float(_) if raw.contains(['e', 'E']) => Ok(Value::Text(Cow::Borrowed(raw))),
        value => Ok(value),
    }
}

/// The value of a field, if the field is not kept as JSON.
fn value_of(raw: &str) -> Result<Value<'_>, Refused> {
    match raw.as_bytes() {
        [b'"', text @ .., b'"'] if memchr::memchr(b'\\', text).is_none() => {
            Ok(Value::Text(Cow::Borrowed(&raw[1..raw.len() - 1])))
        }
        [b'"', ..] => Ok(Value::Text(Cow::Owned(serde_json::from_str(raw).map_err(|error| Refused::at(raw, &error))?))),
        [b'-' | b'0'..=b'9', ..] => number_of(raw),
        [b'n', ..] => Ok(Value::Absent),
        _ => Ok(Value::Other),
    }
}

/// The value of a number in JSON.
pub(crate) fn number_of(raw: &str) -> Result<Value<'static>, Refused> {
    let too_large = || Refused::Syntax("a number is too large".into());
    if raw.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        let value: f64 = raw.parse().map_err(|_| too_large())?;
        return if value.is_finite() { Ok(Value::Float(value)) } else { Err(too_large()) };
    }
    if raw.len() > MAX_DIGITS {
        return Err(too_large());
    }
    let bound = if raw.starts_with('-') { i128::MIN } else { i128::MAX };
    Ok(Value::Integer(raw.parse().unwrap_or(bound)))
}

#[cfg(test)]
mod tests;
