use super::*;
use crate::message::columns::Columns;
use crate::message::{Body, Cancel, MAX_PAYLOAD, Message};

/// A nanosecond past 1,700,000,000,000 ms.
const NOW_NS: i64 = 1_700_000_000_000_000_001;
const DUE: &str = "1790000000000";
const DUE_MS: i64 = 1_790_000_000_000;

fn items(data: &[u8], columns: Columns) -> Vec<Parsed> {
    let schema = Schema::new(columns, MAX_PAYLOAD);
    let reader = Ndjson { source: "test".into(), schema: &schema, now_ns: Some(NOW_NS), after: 0, keeps_origin: true };
    reader.read(&Block::whole(Bytes::copy_from_slice(data))).collect()
}

fn item(line: &str) -> Parsed {
    let [item] = items(line.as_bytes(), Columns::default()).try_into().unwrap();
    item
}

fn message(line: &str) -> Message {
    message_of(line, Columns::default())
}

fn message_of(line: &str, columns: Columns) -> Message {
    match items(line.as_bytes(), columns).remove(0) {
        Parsed::Message(incoming) => incoming.message,
        other => panic!("{line}: {other:?}"),
    }
}

fn bad(line: &[u8]) -> BadRecord {
    bad_of(line, Columns::default())
}

fn bad_of(line: &[u8], columns: Columns) -> BadRecord {
    match items(line, columns).remove(0) {
        Parsed::Bad(bad, _) => bad,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

/// A good message with these members replaced. An empty member is left out.
fn with(members: &[(&str, &str)]) -> String {
    let mut all = vec![("id", "\"a\""), ("due", DUE)];
    for (name, value) in members {
        all.retain(|(other, _)| other != name);
        if !value.is_empty() {
            all.push((name, value));
        }
    }
    let members: Vec<String> = all.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn payload(line: &str) -> String {
    String::from_utf8(message(line).body.payload().to_vec()).unwrap()
}

#[test]
fn the_example_of_the_module_holds__d1() {
    let schema = Schema::new(Columns::default(), 100);
    let reader = Ndjson { source: "-".into(), schema: &schema, now_ns: Some(0), after: 0, keeps_origin: true };
    let lines = Block::whole(Bytes::from_static(b"{\"id\": \"a\", \"delay_ms\": 5, \"payload\": [1.50]}\noops"));
    let found: Vec<Parsed> = reader.read(&lines).collect();
    let [Parsed::Message(message), Parsed::Bad(bad, origin)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((message.message.due_ms, message.message.body.payload()), (5, &b"[1.50]"[..]));
    assert_eq!((origin.line, origin.record()), (2, &b"oops"[..]));
    assert!(bad.reason.starts_with("not a JSON object: "));
}

#[test]
fn a_message_has_id_key_due_and_payload__d1() {
    let expected = Message { body: Body::new(Some("k"), "a", b"[1]", true), due_ms: DUE_MS, delay_ms: None };
    assert_eq!(message(r#"{"id": "a", "key": "k", "due": 1790000000000, "payload": [1]}"#), expected);
    let text = r#"{"id": "a", "key": null, "due": "1970-01-01T00:00:00.005Z", "op": null, "payload_base64": null}"#;
    assert_eq!(message(text).due_ms, 5);
    assert_eq!(message(text).body.key(), None);
    assert_eq!(message(r#"{"id": "\u0061\n\ud83d\ude00", "due": 1790000000000}"#).body.id(), "a\n😀");
}

#[test]
fn json_is_kept_byte_for_byte__d1() {
    for text in [
        "1.50",
        r#""\u00e9 é""#,
        "[null]",
        "1e999",
        r#"{"b" : 1,  "a":{}}"#,
        "12345678901234567890123",
        r#""\ud83d\ude00""#,
    ] {
        assert_eq!(payload(&format!("{{\"id\": \"a\", \"due\": {DUE}, \"payload\": {text} }}")), text);
    }
    assert_eq!(payload(&with(&[("payload", "[1,\r2]")])), "[1, 2]");
    assert_eq!(payload(&with(&[("x", "[1,\r2]")])), "{\"x\":[1, 2]}");
}

#[test]
fn other_bytes_come_as_base64__d1() {
    for (text, bytes) in [("\"/wA=\"", &b"\xff\x00"[..]), ("\"\"", b""), ("\"AB==\"", b"\0")] {
        let body = message(&with(&[("payload_base64", text)])).body;
        assert_eq!((body.payload(), body.is_json()), (bytes, false));
    }
}

#[test]
fn without_a_payload_the_other_fields_are_the_payload__d1() {
    assert_eq!(payload(r#"{"x": 1.50, "id": "a", "due": 1790000000000, "y\n": "é"}"#), r#"{"x":1.50,"y\n":"é"}"#);
    assert_eq!(payload(&with(&[])), "{}");
    assert_eq!(payload(&with(&[("x", "null"), ("payload", "null")])), "{}");
    assert_eq!(payload(&with(&[("x", "[null]")])), r#"{"x":[null]}"#);
}

#[test]
fn the_caller_may_name_the_columns__d11() {
    let some = |name: &str| Some(name.to_owned());
    let all = Columns::named(some("flight"), some("tail"), some("at"), some("body"));
    let found = message_of(r#"{"flight": "a", "tail": "t", "at": 1790000000000, "body": 1}"#, all.clone());
    assert_eq!(found, Message { body: Body::new(Some("t"), "a", b"1", true), due_ms: DUE_MS, delay_ms: None });
    let id = Columns { id: some("flight"), ..Columns::default() };
    let found = message_of(r#"{"flight": "a", "id": "b", "due": 1790000000000}"#, id);
    assert_eq!(found.body.payload(), b"{\"id\":\"b\"}");
    let same = Columns { id: some("id"), key: some("id"), ..Columns::default() };
    assert_eq!(message_of(&with(&[]), same).body.key(), Some("a"));
    assert_eq!(
        bad_of(br#"{"flight": "a", "tail": "t", "at": 1790000000000, "x": 1}"#, all.clone()).reason,
        "body is missing"
    );
    let reason = bad_of(br#"{"flight": "a", "tail": "t", "at": "2026-01-31T08:00:00", "body": 1}"#, all).reason;
    assert_eq!(reason, "at has no zone: '2026-01-31T08:00:00'");
}

#[test]
fn a_delay_counts_from_acceptance_and_is_rounded_up__d1() {
    for (delay, due_ms) in [("0", 1), ("1.5", 3), ("-1000", -999), ("1E3", 1001), ("1e-9", 2)] {
        let found = message(&with(&[("due", ""), ("delay_ms", delay)]));
        assert_eq!(found.due_ms, 1_700_000_000_000 + due_ms, "{delay}");
        assert_eq!(found.delay_ms, Some(delay.parse().unwrap()));
    }
    let schema = Schema::new(Columns::default(), MAX_PAYLOAD);
    let line = with(&[("due", ""), ("delay_ms", "5")]);
    let bad = schema.check(&fields_of(&line, &schema).unwrap(), None).unwrap_err();
    assert_eq!(bad.allowed, "with --speed: due; in an outbox: a written_ms of this century");
}

#[test]
fn a_cancel_has_id_and_key__d7() {
    for (line, key) in [
        (r#"{"op": "cancel", "id": "a"}"#, None),
        (r#"{"op": "cancel", "id": "a", "key": "k", "due": null}"#, Some("k".to_owned())),
    ] {
        let Parsed::Cancel(cancel, _) = item(line) else { panic!("{line}") };
        assert_eq!(cancel, Cancel { id: "a".into(), key, keep_days: 0 });
    }
}

#[test]
fn a_payload_and_a_record_are_bounded__d12() {
    let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    assert_eq!(message(&with(&[("payload", &text(MAX_PAYLOAD))])).body.payload().len(), MAX_PAYLOAD);
    for (name, value, reason) in [
        ("payload", text(MAX_PAYLOAD + 1), "the payload has 1,048,577 bytes"),
        ("x", text(MAX_PAYLOAD), "the payload has 1,048,582 bytes"),
        ("payload", text(2 * MAX_PAYLOAD), "the record has 2,097,193 bytes, only the first 1,024 are kept here"),
    ] {
        assert_eq!(bad(with(&[(name, &value)]).as_bytes()).reason, reason);
    }
}

#[test]
fn blank_lines_are_no_records_and_lines_keep_their_numbers__d2() {
    let good = with(&[]);
    let data = format!("\u{feff}{good}\r\n \t\r\n\n  oops \n{good}");
    let found = items(data.as_bytes(), Columns::default());
    let [Parsed::Message(first), Parsed::Bad(_, second), Parsed::Message(third)] = &found[..] else {
        panic!("{found:?}")
    };
    let [first, third] = [first, third].map(|incoming| incoming.origin.as_ref().unwrap());
    assert_eq!([first.line, second.line, third.line], [1, 4, 5]);
    assert_eq!(second.record(), b"oops");
    assert_eq!(&*second.source, "test");
    assert_eq!((first.record(), third.record()), (good.as_bytes(), good.as_bytes()));
}

#[test]
fn lines_that_an_earlier_run_accepted_are_skipped__d11() {
    let schema = Schema::new(Columns::default(), MAX_PAYLOAD);
    let reader = Ndjson { source: "test".into(), schema: &schema, now_ns: None, after: 11, keeps_origin: false };
    let lines = format!("oops\noops\n{}\n", with(&[]));
    let block = Block { bytes: Bytes::copy_from_slice(lines.as_bytes()), first_line: 10, left_out: 0 };
    let found: Vec<Parsed> = reader.read(&block).collect();
    assert!(matches!(&found[..], [Parsed::Message(incoming)] if incoming.origin.is_none()), "{found:?}");
}

#[test]
fn a_near_miss_of_a_name_says_which_was_meant__d1() {
    for (line, reason) in [
        (with(&[("paylod", "1")]), "'paylod' is not a field: payload is probably meant"),
        (with(&[("Payload_Base64", "\"AA==\"")]), "'Payload_Base64' is not a field: payload_base64 is probably meant"),
        (with(&[("due", ""), ("delay", "5")]), "'delay' is not a field: delay_ms is probably meant"),
        (with(&[("Key", "1")]), "'Key' is not a field: key is probably meant"),
        (with(&[("expires_ms", "5")]), "'expires_ms' is not a field: expires is probably meant"),
        (with(&[("replace", "true")]), "replace is not a field of a record"),
        (with(&[("at_latest_ms", "5")]), "at_latest_ms is not a field of a record"),
        (with(&[("payload", "1"), ("paylod", "2")]), "fields beside the payload: paylod"),
    ] {
        assert_eq!(bad(line.as_bytes()).reason, reason);
    }
    assert_eq!(payload(&with(&[("delay", "5"), ("due_at", "6")])), r#"{"delay":5,"due_at":6}"#);
    assert_eq!(payload(&with(&[("replace", "\"a\"")])), r#"{"replace":"a"}"#);
}

/// Each record becomes a dead letter whose reason is this text or begins with it.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_breaks_the_schema_says_why_and_what_is_allowed__d2() {
    const NOT_JSON: &str = "not a JSON object: ";
    const TOO_DEEP: &str = "the JSON is nested too deep";
    const TWICE: &str = "a name occurs twice in the object";
    let nested = "[".repeat(100_000) + &"]".repeat(100_000);
    let many_nines = "9".repeat(100_000);
    let double = |text: &str| format!("{text}{text}");
    let long_fraction = format!("\"2026-01-31T08:00:00.{many_nines}\"");
    let many_names = (0..50_000).map(|n| format!("\"f{n}\":1")).collect::<Vec<_>>().join(",");
    let cases: Vec<(String, &str)> = [
        ("hello", NOT_JSON),
        ("[1]", NOT_JSON),
        ("17", NOT_JSON),
        ("null", NOT_JSON),
        ("{\"id\":\"a\",\"du", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5,\"payload\":\"abc", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5,}", NOT_JSON),
        ("{'id':'a','due':5}", NOT_JSON),
        ("{id:\"a\",\"due\":5}", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5}\0", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5,\"\\udc00\":1}", NOT_JSON),
        ("{\"id\":\"a\",\"due\":1,\"due\":5,\"payload\":oops}", NOT_JSON),
        ("{\"id\":\"a\",\"due\":5,\"id\":\"b\"}", TWICE),
        ("{\"id\":\"a\",\"due\":5,\"\\u0069d\":\"b\"}", TWICE),
        ("{\"id\":\"a\",\"due\":5,\"x\":1,\"x\":1}", TWICE),
        ("{}", "id is missing"),
        ("{\"op\":\"cancel\"}", "id is missing"),
        ("{\"op\":\"CANCEL\",\"id\":\"a\"}", "op is not known"),
        ("{\"op\":\"move\",\"id\":\"a\",\"due\":5}", "op is not known"),
        ("{\"op\":\"reschedule\",\"id\":\"a\"}", "due is missing"),
        ("{\"op\":\"reschedule\",\"id\":\"a\",\"due\":5}", "due is 5, which looks like seconds"),
        (
            "{\"op\":\"reschedule\",\"id\":\"a\",\"delay_ms\":5,\"payload\":1}",
            "a reschedule has more than a name and a time",
        ),
        ("{\"id\":\"a\",\"delay_ms\":5,\"expires\":4}", "expires is 4, which looks like seconds"),
        ("{\"id\":\"a\",\"delay_ms\":5,\"expires\":[]}", "expires is neither a time nor an integer"),
        ("{\"id\":\"a\",\"due\":200000000000,\"expires\":200000000000}", "it expires when it is due"),
        ("{\"id\":\"a\",\"due\":200000002000,\"expires\":200000000000}", "it expires 2,000 ms before it is due"),
        ("{\"id\":\"a\",\"delay_ms\":5,\"traceparent\":\"00\"}", "'00' is no traceparent"),
        ("{\"id\":\"a\",\"delay_ms\":5,\"traceparent\":5}", "traceparent is not text"),
        ("{\"op\":\"cancel\",\"id\":\"a\",\"due\":5}", "a cancel has more than id and key"),
        ("{\"op\":\"cancel\",\"id\":\"a\",\"x\":5}", "a cancel has more than id and key"),
    ]
    .into_iter()
    .map(|(line, reason)| (line.to_owned(), reason))
    .chain([
        (double(&with(&[])), NOT_JSON),
        (with(&[]) + " // soon", NOT_JSON),
        ("{\"a\":".repeat(100_000), TOO_DEEP),
        (format!("{{\"id\":\"a\",{many_names},\"f7\":1}}"), TWICE),
    ])
    .chain(
        [
            ("payload", "NaN", NOT_JSON),
            ("payload", "-Infinity", NOT_JSON),
            ("due", "0x5", NOT_JSON),
            ("due", "05", NOT_JSON),
            ("due", "1e999999", NOT_JSON),
            ("due", &many_nines, NOT_JSON),
            ("payload", "\"\u{1}\"", NOT_JSON),
            ("payload", "\"a\tb\"", NOT_JSON),
            ("payload", "\"a\rb\"", NOT_JSON),
            ("payload", "\"\\x41\"", NOT_JSON),
            ("payload", "\"\\ud800\"", NOT_JSON),
            ("payload", &nested, TOO_DEEP),
            ("x", &nested, TOO_DEEP),
            ("due", &nested, TOO_DEEP),
            ("id", "", "id is missing"),
            ("id", "null", "id is missing"),
            ("id", "\"\"", "id is empty"),
            ("id", "7", "id is not text"),
            ("id", "[\"a\"]", "id is not text"),
            ("id", "true", "id is not text"),
            ("key", "1.5", "key is not text"),
            ("key", "\"\"", "key is empty"),
            ("due", "", "due is missing"),
            ("due", "5", "due is 5, which looks like seconds; in milliseconds it is 5000"),
            ("due", "99999999999", "due is 99999999999, which looks like seconds"),
            ("due", "5.5", "due is 5.5, which looks like seconds; in milliseconds it is 5500"),
            ("due", "1.77e12", "due is 1.77e12, which may be rounded"),
            ("due", "1790000000000.5", "due is 1790000000000.5, which is no whole number of milliseconds"),
            ("due", "false", "due is neither a time nor an integer"),
            ("due", "{\"$date\":5}", "due is neither a time nor an integer"),
            ("due", "-1", "due is out of range"),
            ("due", "1769846400000000000", "due is 1769846400000000000, which looks like nanoseconds"),
            ("due", "99999999999999999999999", "due is out of range"),
            ("due", "\"5\"", "due is text of digits: '5'"),
            ("due", "\"soon\"", "due is not a time: 'soon'"),
            ("due", &long_fraction, "due has no zone: '2026-01-31T08:00:00.9999999999999999999999999999999999999999'"),
            ("delay_ms", "5", "both due and delay_ms are given"),
            ("payload_base64", "\"AA\"", "payload_base64 can't be decoded: "),
            ("payload_base64", "\"_-__\"", "payload_base64 can't be decoded: "),
            ("payload_base64", "\"AA==\\n\"", "payload_base64 can't be decoded: "),
            ("payload_base64", "\"éé==\"", "payload_base64 is not base64"),
            ("payload_base64", "5", "payload_base64 is not base64"),
            ("op", "\"delete\"", "op is not known"),
            ("op", "\"\"", "op is not known"),
            ("op", "[\"cancel\"]", "op is not known"),
        ]
        .map(|(name, value, reason)| (with(&[(name, value)]), reason)),
    )
    .chain(
        ["\"5\"", "true", "1e300", "253402300800000"]
            .map(|delay| (with(&[("due", ""), ("delay_ms", delay)]), "delay_ms is not a number in range")),
    )
    .chain(
        ["253402300799999", "-2e12"]
            .map(|delay| (with(&[("due", ""), ("delay_ms", delay)]), "now + delay_ms is out of range")),
    )
    .chain([
        (with(&[("payload", "1"), ("payload_base64", "\"\"")]), "both payload and payload_base64 are given"),
        (with(&[("payload", "1"), ("Payload", "2"), ("x", "3")]), "fields beside the payload: Payload, x"),
    ])
    .collect();
    for (line, reason) in cases {
        let bad = bad(line.as_bytes());
        let shown = &line[..line.len().min(100)];
        assert!(bad.reason.starts_with(reason), "{shown}: {bad}");
        assert!(!bad.allowed.is_empty() && bad.reason.len().max(bad.allowed.len()) < 500, "{shown}: {bad}");
        assert!(!bad.to_string().contains('\n'), "{shown}: {bad}");
    }
}

#[test]
fn a_line_that_is_not_utf8_says_at_which_byte__d2() {
    for (line, byte) in [
        (&b"{\"id\":\"a\xff\",\"due\":5}"[..], 9),
        (b"{\"id\":\"\xc0\x80\",\"due\":5}", 8),
        (b"{\"id\":\"\xed\xa0\x80\",\"due\":5}", 8),
        (b"{\"id\":\"a\",\"due\":5,\"payload\":\"\xc3", 30),
        (b"  {\"\xff\":1}", 5),
        (b"\x1f\x8b\x08\x00\x00\xff", 2),
    ] {
        assert_eq!(bad(line).reason, format!("byte {byte} of the line is not UTF-8"));
        assert_eq!(bad(line).allowed, "UTF-8 text; other bytes as payload_base64");
    }
}

#[test]
fn an_error_of_json_says_what_and_where__d2() {
    assert_eq!(bad(b"[1]").reason, "not a JSON object: invalid type: sequence, expected an object");
    assert_eq!(bad(b"{\"id\":\"a\",}").reason, "not a JSON object: trailing comma, at byte 11");
    assert_eq!(bad(b"{\"id\":\"a\"").reason, "not a JSON object: EOF while parsing an object, at byte 9");
}

fn reader(schema: &Schema, keeps_origin: bool) -> Ndjson<'_> {
    Ndjson { source: "t/0".into(), schema, now_ns: Some(NOW_NS), after: 0, keeps_origin }
}

#[test]
fn a_value_holds_one_record_and_keeps_its_place__d1() {
    let schema = Schema::new(Columns::default(), MAX_PAYLOAD);
    let read = |value: &[u8]| reader(&schema, true).read_value(&Bytes::copy_from_slice(value), 7);
    let place = |item: &Parsed| item.origin().map(|origin| (origin.line, origin.record().to_vec()));
    let one = with(&[]);
    let Parsed::Message(found) = read(format!("\n{one}\n").as_bytes()) else { panic!() };
    assert_eq!((found.message.due_ms, place(&Parsed::Message(found))), (DUE_MS, Some((7, one.clone().into_bytes()))));
    let cancel = read(b"{\"id\":\"a\",\"op\":\"cancel\"}");
    assert!(matches!(cancel, Parsed::Cancel(..)) && place(&cancel).unwrap().0 == 7);
    for (value, why) in [
        (String::new(), "the value holds 0 records"),
        (format!("{one}\n{one}"), "the value holds 2 records"),
        ("oops".to_owned(), "not a JSON object: expected value, at byte 1"),
    ] {
        let item = read(value.as_bytes());
        assert_eq!(place(&item), Some((7, value.clone().into_bytes())));
        assert!(matches!(item, Parsed::Bad(bad, _) if bad.reason == why), "{value}");
    }
}

#[test]
fn an_object_may_stand_on_several_lines__d11() {
    let schema = Schema::new(Columns::default(), 10);
    let read = |text: &str| reader(&schema, false).read_object(&Bytes::copy_from_slice(text.as_bytes()));
    let text = format!("{{\n\"id\": \"a\",\n\"due\": {DUE},\n\"payload\": [1,\n2]\n}}\n");
    let Parsed::Message(found) = read(&text) else { panic!() };
    assert_eq!((found.message.body.payload(), found.origin), (&b"[1, 2]"[..], None));
    assert!(matches!(read(&format!("{text}{text}")), Parsed::Bad(..)), "two of them");
    assert!(matches!(read("{\"id\": \"a\", \"op\": \"cancel\"}"), Parsed::Cancel(..)));
}

#[test]
fn the_number_of_a_table_says_how_it_becomes_an_id__d1() {
    let bad = bad(with(&[("id", "7")]).as_bytes());
    assert_eq!(bad.allowed, "id: text, as \"7\"; of a table, convert the column to text");
}
