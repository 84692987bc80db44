//! The body of a request (rule D23): the line of the file sink, the payload alone, or JSON with places.
//!
//! A place is `{{NAME}}` or `{{NAME|DEFAULT}}` within a string. `NAME` is `id`, `key`, `due`, `attempt`, `destination`,
//! `tenant`, `cause`, `event` or `payload`. The event and a JSON payload also have parts: members and numbers of elements
//! behind points. Nothing is evaluated.
//!
//! - A place that is a whole string gives the value with its JSON type. Between other text, the value is text too, and
//!   what is no string is written as JSON. The strings are escaped after that, so no value can end its string.
//! - A payload that is not JSON is a text. If it is not UTF-8 either, it is missing.
//! - A value that is missing or `null` is replaced by the default, which is text. Without one there is no body, and the
//!   message is a dead letter.
//!
//! Example: with `{"text":"Hi {{payload.name|you}}","sum":"{{payload.sum}}"}`, the payload `{"name":"\"A\"","sum":1.50}`
//! gives `{"text":"Hi \"A\"","sum":1.50}`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use hyper::header::{HeaderName, HeaderValue};
use memchr::memchr;
use serde_json::value::RawValue;

use crate::base::display::{quoted, write_percent};
use crate::base::error::DeliveryError;
use crate::base::json::{end_of_string, value_of, write_text};
use crate::base::times::rfc_3339;
use crate::message;
use crate::message::named::NamedBody;
use crate::sinks::Delivery;
use crate::sinks::line::LineWriter;

const MOST_BYTES: usize = 64 << 10;
const MOST_PLACES: usize = 64;
/// Each step reads the value that it is a part of.
const MOST_STEPS: usize = 8;
/// A template may have a large payload in several places.
const MOST_WRITTEN: usize = 16 << 20;
const ALLOWED: &str = "allowed: id, key, due, attempt, destination, tenant, cause, event, payload and parts of these two, as in {{payload.user.name}}, \
    each with a default behind a bar, as in {{key|nobody}}";

#[derive(Clone)]
pub(super) enum Body {
    Envelope,
    Payload,
    Template(Arc<[Part]>),
}

#[derive(Clone)]
pub(super) enum Part {
    Json(String),
    /// A string that is one place.
    Value(Place),
    /// A string with places in it.
    Text(Vec<Piece>),
}

#[derive(Clone)]
pub(super) enum Piece {
    Text(String),
    Place(Place),
}

#[derive(Clone)]
pub(super) struct Place {
    name: String,
    default: Option<String>,
}

struct Value<'a> {
    /// The text, or JSON of any other type.
    text: Cow<'a, str>,
    is_json: bool,
}

/// The bytes of a request: those before the payload, a large payload itself, of which no copy is made, and those after it.
pub(super) type Content = Chain<Chain<Bytes, Bytes>, Bytes>;

/// A copy of a smaller payload costs less than a third part of a body.
const LARGE: usize = 16 << 10;

/// The payload that the message in memory has.
struct Shared(message::Body);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

impl Body {
    /// # Errors
    /// [`DeliveryError::Usage`]: what is wrong with the template.
    pub(super) fn of(named: &NamedBody) -> Result<Self, DeliveryError> {
        match named {
            NamedBody::Envelope => Ok(Self::Envelope),
            NamedBody::Payload => Ok(Self::Payload),
            NamedBody::Template(json) => match parts_of(json) {
                Ok(parts) => Ok(Self::Template(parts.into())),
                Err(why) => Err(DeliveryError::Usage(format!("the body {why}"))),
            },
        }
    }
}

fn parts_of(json: &str) -> Result<Vec<Part>, String> {
    if json.len() > MOST_BYTES {
        return Err(format!("has {} bytes (allowed: {MOST_BYTES})", json.len()));
    }
    let json = value_of(json).map_err(|why| format!("is not JSON: {why}"))?;
    if !json.starts_with(['{', '[']) {
        let form = "an object or an array with places, as in {\"text\": \"{{payload.text}}\"}";
        return Err(format!("is {} (allowed: \"envelope\", \"payload\", or {form})", quoted(json, 60)));
    }
    let (mut parts, mut from, mut at, mut places) = (Vec::new(), 0, 0, 0);
    while let Some(found) = memchr(b'"', &json.as_bytes()[at..]) {
        let start = at + found;
        at = end_of_string(json.as_bytes(), start) + 1;
        let text: String = serde_json::from_str(&json[start..at]).expect("it was checked");
        let mut pieces = pieces_of(&text)?;
        let count = pieces.iter().filter(|piece| matches!(piece, Piece::Place(_))).count();
        if count == 0 {
            continue;
        }
        if json[at..].trim_start().starts_with(':') {
            return Err(format!("has a place in a member's name, {} (allowed: in values)", quoted(&text, 60)));
        }
        places += count;
        parts.push(Part::Json(json[from..start].to_owned()));
        parts.push(match pieces.pop() {
            Some(Piece::Place(place)) if pieces.is_empty() => Part::Value(place),
            last => Part::Text(pieces.into_iter().chain(last).collect()),
        });
        from = at;
    }
    if places > MOST_PLACES {
        return Err(format!("has {places} places (allowed: {MOST_PLACES})"));
    }
    parts.push(Part::Json(json[from..].to_owned()));
    Ok(parts)
}

fn pieces_of(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, behind) = after
            .split_once("}}")
            .ok_or_else(|| format!("has {{{{ without }}}} in {}: {ALLOWED}", quoted(text, 60)))?;
        let (name, default) = match inside.split_once('|') {
            Some((name, default)) => (name, Some(default.trim().to_owned())),
            None => (inside, None),
        };
        let name = name.trim().to_owned();
        let mut steps = name.split('.');
        let is_known = if matches!(steps.next(), Some("payload" | "event")) {
            steps.clone().count() <= MOST_STEPS && steps.all(|step| !step.is_empty())
        } else {
            matches!(&*name, "id" | "key" | "due" | "attempt" | "destination" | "tenant" | "cause")
        };
        if !is_known {
            return Err(format!("has the place {} ({ALLOWED}; at most {MOST_STEPS} steps)", quoted(&name, 60)));
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Place(Place { name, default }));
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// The line of the file sink.
pub(super) fn envelope(lines: &mut LineWriter, delivery: &Delivery) -> Content {
    let mut line = Vec::new();
    if !delivery.body.is_json() || delivery.body.payload().len() < LARGE {
        lines.write(&mut line, delivery);
        return content(line, Bytes::new(), Vec::new());
    }
    let mut place = 0;
    lines.write_around(&mut line, delivery, |out| {
        out.extend_from_slice(b",\"payload\":");
        place = out.len();
    });
    let after = line.split_off(place);
    content(line, payload(delivery), after)
}

pub(super) fn payload(delivery: &Delivery) -> Bytes {
    Bytes::from_owner(Shared(delivery.body.clone()))
}

pub(super) fn content(before: Vec<u8>, payload: Bytes, after: Vec<u8>) -> Content {
    Bytes::from(before).chain(payload).chain(Bytes::from(after))
}

/// The headers beside a payload that is a body alone.
pub(super) fn facts(delivery: &Delivery) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let due = rfc_3339(delivery.due_ms);
    let of_event = |name| part_at(delivery.event(), std::iter::once(name));
    let header = |name, text: &[u8]| {
        let mut value = String::new();
        write_percent(&mut value, text, |byte| byte.is_ascii_graphic() && byte != b'%');
        (HeaderName::from_static(name), HeaderValue::from_str(&value).expect("it is ASCII"))
    };
    [
        Some(header("tickwheel-id", delivery.body.id().as_bytes())),
        delivery.body.key().map(|key| header("tickwheel-key", key.as_bytes())),
        Some(header("tickwheel-due", &due)),
        Some(header("tickwheel-attempt", delivery.attempt.to_string().as_bytes())),
        Some(header("tickwheel-redelivered", delivery.redelivered.to_string().as_bytes())),
        delivery.body.tenant().map(|name| header("tickwheel-tenant", name.as_bytes())),
        delivery.cause().map(|cause| header("tickwheel-cause", cause.as_bytes())),
        of_event("name").map(|it| header("tickwheel-event", it.text.as_bytes())),
        of_event("id").map(|it| header("tickwheel-event-id", it.text.as_bytes())),
    ]
    .into_iter()
    .flatten()
}

/// The body for this message.
///
/// # Errors
/// The reason, if it can have none.
pub(super) fn written(parts: &[Part], delivery: &Delivery) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            Part::Json(json) => out.extend_from_slice(json.as_bytes()),
            Part::Value(place) => match place.value(delivery)? {
                Value { text, is_json: true } => out.extend_from_slice(text.as_bytes()),
                Value { text, is_json: false } => write_text(&mut out, &text),
            },
            Part::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(own) => text.push_str(own),
                        Piece::Place(place) => text.push_str(&place.value(delivery)?.text),
                    }
                    check_size(out.len() + text.len())?;
                }
                write_text(&mut out, &text);
            }
        }
        check_size(out.len())?;
    }
    Ok(out)
}

fn check_size(size: usize) -> Result<(), String> {
    if size <= MOST_WRITTEN { Ok(()) } else { Err(format!("its body has more than {} MiB", MOST_WRITTEN >> 20)) }
}

impl Place {
    /// # Errors
    /// It is missing, and there is no default.
    fn value<'a>(&'a self, delivery: &'a Delivery) -> Result<Value<'a>, String> {
        let found = match &*self.name {
            "id" => Some(text(delivery.body.id())),
            "key" => delivery.body.key().map(text),
            "destination" => delivery.body.destination().map(text),
            "tenant" => delivery.body.tenant().map(text),
            "due" => Some(text(String::from_utf8_lossy(&rfc_3339(delivery.due_ms)).into_owned())),
            "attempt" => Some(Value { text: delivery.attempt.to_string().into(), is_json: true }),
            "cause" => delivery.cause().map(text),
            path => {
                let mut steps = path.split('.');
                let is_event = steps.next() == Some("event");
                if is_event { part_at(delivery.event(), steps) } else { of_payload(delivery, steps) }
            }
        };
        found.or_else(|| self.default.as_deref().map(text)).ok_or_else(|| {
            let name = &self.name;
            format!("it has no {name}, which the body of its destination needs (a default: {{{{{name}|nobody}}}})")
        })
    }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Value<'a> {
    Value { text: text.into(), is_json: false }
}

fn of_payload<'a>(delivery: &'a Delivery, mut steps: impl Iterator<Item = &'a str>) -> Option<Value<'a>> {
    let payload = std::str::from_utf8(delivery.body.payload()).ok()?;
    if !delivery.body.is_json() {
        return steps.next().is_none().then(|| text(payload));
    }
    part_at(Some(payload), steps)
}

fn part_at<'a>(json: Option<&'a str>, mut steps: impl Iterator<Item = &'a str>) -> Option<Value<'a>> {
    match steps.try_fold(json?, part_of)?.trim() {
        "null" => None,
        json if json.starts_with('"') => serde_json::from_str::<String>(json).ok().map(text),
        json => Some(Value { text: json.into(), is_json: true }),
    }
}

fn part_of<'a>(json: &'a str, step: &str) -> Option<&'a str> {
    let part: &RawValue = if json.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(json).ok()?.get(step.parse::<usize>().ok()?).copied()?
    } else {
        serde_json::from_str::<HashMap<String, &RawValue>>(json).ok()?.remove(step)?
    };
    Some(part.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::until::{Cause, Until};
    use crate::message::{Body as MessageBody, Message};

    fn delivery(key: Option<&str>, payload: &[u8], is_json: bool) -> Delivery {
        let body = MessageBody::new(key, "a \"1\"", payload, is_json);
        Delivery::from_parts(Message::from_parts(body, 1_000, None), 1, 2, 1_000, 3, true)
    }

    fn made(template: &str, delivery: &Delivery) -> Result<String, String> {
        written(&parts_of(template)?, delivery).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_example_holds__d23() {
        let delivery = delivery(None, br#"{"name":"\"A\"","sum":1.50}"#, true);
        let template = r#"{"text":"Hi {{payload.name|you}}","sum":"{{payload.sum}}"}"#;
        assert_eq!(made(template, &delivery), Ok(r#"{"text":"Hi \"A\"","sum":1.50}"#.to_owned()));
    }

    #[test]
    fn a_value_keeps_its_type_and_is_escaped_for_where_it_stands__d23() {
        let payload = br#"{"s":"q\" \\ \n \u0001 {{id}}","n":12345678901234567890.10,"t":true,"z":null,"o":{"a":[1,{"b":"x"}]},"":0}"#;
        let delivery = delivery(Some("k\",\"x\":\""), payload, true);
        for (place, expected) in [
            ("{{payload.s}}", r#""q\" \\ \n \u0001 {{id}}""#),
            ("<{{payload.s}}>", r#""<q\" \\ \n \u0001 {{id}}>""#),
            ("{{payload.n}}", "12345678901234567890.10"),
            ("{{payload.n}} pieces", r#""12345678901234567890.10 pieces""#),
            ("{{payload.t}}{{payload.t}}", r#""truetrue""#),
            ("{{payload.o}}", r#"{"a":[1,{"b":"x"}]}"#),
            ("it is {{payload.o}}", r#""it is {\"a\":[1,{\"b\":\"x\"}]}""#),
            ("{{payload.o.a.1.b}}", r#""x""#),
            ("{{payload.z|none}}", r#""none""#),
            ("{{payload.no.such | of 1 | 2 }}", r#""of 1 | 2""#),
            ("{{payload.s.x|}}", r#""""#),
            ("{{key}}", r#""k\",\"x\":\"""#),
            ("{{ id }}!", r#""a \"1\"!""#),
            ("{{due}}", r#""1970-01-01T00:00:01.000Z""#),
            ("{{attempt}}", "3"),
            ("{{destination|none}}", r#""none""#),
            ("{ {payload} } }}", r#""{ {payload} } }}""#),
        ] {
            let template = format!(r#"[1.0, {}, "\u00e9"]"#, serde_json::to_string(place).unwrap());
            assert_eq!(made(&template, &delivery), Ok(format!(r#"[1.0, {expected}, "\u00e9"]"#)), "{place}");
        }
    }

    fn caused(cause: Cause) -> Delivery {
        let until = Until { names: "paid".into(), cause };
        let body = MessageBody::new(Some("k"), "a", b"1", true).with(|extras| extras.until = Some(until.into()));
        Delivery::from_parts(Message::from_parts(body, 1_000, None), 1, 2, 1_000, 1, false)
    }

    #[test]
    fn a_template_may_tell_the_cause_and_the_event__d22_d23() {
        let template = r#"["{{cause|none}}", "by {{event.name|nothing}}", "{{event.payload.0|0}}", "{{event|none}}"]"#;
        let data = r#"{"name":"paid","id":"e","payload":[12.50]}"#;
        for (delivery, expected) in [
            (caused(Cause::Event(1, data.into())), format!(r#"["event", "by paid", 12.50, {data}]"#)),
            (caused(Cause::Deadline), r#"["deadline", "by nothing", "0", "none"]"#.to_owned()),
            (delivery(None, b"1", true), r#"["none", "by nothing", "0", "none"]"#.to_owned()),
        ] {
            assert_eq!(made(template, &delivery), Ok(expected));
        }
    }

    #[test]
    fn the_headers_say_which_event_let_it_go__d22_d23() {
        let caused = |cause: Cause| {
            facts(&caused(cause))
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .skip(5)
                .collect::<Vec<_>>()
        };
        assert_eq!(caused(Cause::Open), ["tickwheel-cause: deadline"]);
        let data = r#"{"name":"paid","id":"\u00e9 1","payload":[1]}"#;
        let event = ["tickwheel-cause: event", "tickwheel-event: paid", "tickwheel-event-id: %C3%A9%201"];
        assert_eq!(caused(Cause::Event(1, data.into())), event);
        assert_eq!(facts(&delivery(None, b"1", true)).count(), 4);
    }

    #[test]
    fn a_payload_that_is_not_json_is_a_text__d23() {
        let template = r#"{"text":"{{payload}}"}"#;
        assert_eq!(made(template, &delivery(None, b"1\n", false)), Ok(r#"{"text":"1\n"}"#.to_owned()));
        for payload in [&b"\xff"[..], b"null"] {
            assert!(made(template, &delivery(None, payload, payload == b"null")).unwrap_err().contains("no payload,"));
        }
    }

    #[test]
    fn what_is_missing_is_told_with_its_name__d23() {
        let delivery = delivery(None, br#"{"a":{"b":null},"c":[0]}"#, true);
        for name in [
            "key",
            "destination",
            "tenant",
            "cause",
            "event",
            "event.name",
            "payload.x",
            "payload.a.b",
            "payload.a.b.c",
            "payload.c.1",
            "payload.c.x",
        ] {
            let error = made(&format!(r#"["for {{{{{name}}}}}"]"#), &delivery).unwrap_err();
            assert!(error.starts_with(&format!("it has no {name}, which")), "{error}");
        }
    }

    #[test]
    fn a_template_that_is_none_is_refused_with_what_is_allowed__d23() {
        let nested = "[".repeat(1_000) + &"]".repeat(1_000);
        for (template, expected) in [
            ("\"envelop\"", "allowed: \"envelope\", \"payload\", or an object"),
            ("17", "allowed: \"envelope\""),
            ("{", "is not JSON"),
            (&*nested, "nested too deep"),
            (r#"["{{user.name}}"]"#, "has the place 'user.name' (allowed: id, key"),
            (r#"["{{}}"]"#, "has the place ''"),
            (r#"["{{payload..a}}"]"#, "has the place 'payload..a'"),
            (r#"["{{payload.1.2.3.4.5.6.7.8.9}}"]"#, "at most 8 steps"),
            (r#"["{{id.x}}"]"#, "has the place 'id.x'"),
            (r#"["{{payload"]"#, "has {{ without }}"),
            (r#"["\u007b{7*7}}"]"#, "has the place '7*7'"),
            (r#"{"{{id}}" : 1}"#, "has a place in a member's name"),
            (&*format!("[{}0]", r#""{{id}}","#.repeat(65)), "has 65 places (allowed: 64)"),
            (&*format!("[\"{}\"]", "x".repeat(MOST_BYTES)), "has 65540 bytes"),
        ] {
            let error = parts_of(template).err().unwrap_or_default();
            assert!(error.contains(expected), "{template:.60}: {error}");
        }
    }

    #[test]
    fn a_body_has_a_bound__d8() {
        let delivery = delivery(None, &vec![b'x'; 1 << 20], false);
        for template in
            [format!("[{}0]", r#""{{payload}}","#.repeat(20)), format!("[\"{}\"]", "{{payload}}".repeat(20))]
        {
            assert_eq!(made(&template, &delivery).unwrap_err(), "its body has more than 16 MiB");
        }
    }
}
