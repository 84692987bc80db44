use super::{content_of, float};
use crate::message::incoming::{Digest, Incoming, lane_of};
use crate::message::{Body, Message};

fn message(key: Option<&str>, delay_ms: Option<f64>, payload: &[u8], is_json: bool) -> Message {
    Message { body: Body::new(key, "a", payload, is_json), due_ms: 1_790_000_000_000, delay_ms }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[test]
fn the_hashes_of_the_stores_format_never_change__d5() {
    assert_eq!(hex(&Digest::of(None, "a").0), "81b36a4468495f04ff472115cf189272");
    assert_eq!(hex(&Digest::of(Some("é😀"), "a").0), "89e817d4c69408b10c21b9c9abf67f7d");
    assert_eq!(Digest::of(None, "a").number(), i64::from_le_bytes([0x81, 0xb3, 0x6a, 0x44, 0x68, 0x49, 0x5f, 4]));
    assert_eq!(lane_of(Some("é😀")), Some(-676_998_137_607_398_297));
    assert_eq!(lane_of(None), None);
    for (message, expected) in [
        (message(None, None, b"1", true), "8cc1ebd7368f734f6dfc5556775d0c"),
        (message(None, None, b"1", false), "1d59f0d544b6f8cb00cafe80ed03f3e3"),
        (message(None, Some(5.0), b"1", true), "d5f884b4defcf2ea94bb8fa5eec0f9"),
        (message(None, Some(1e-5), b"1", true), "c724291cd2e8f896ad1387a123e5b6"),
    ] {
        assert_eq!(hex(content_of(message.parts()).as_bytes()), expected, "{message:?}");
    }
}

#[test]
fn names_without_a_key_and_with_another_cut_are_different_names__d5() {
    let names =
        [Digest::of(None, "ab"), Digest::of(Some("a"), "b"), Digest::of(Some("ab"), ""), Digest::of(Some(""), "ab")];
    for (at, name) in names.iter().enumerate() {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{at}");
    }
}

#[test]
fn hashes_side_by_side_are_those_one_by_one__d5() {
    for size in [0, 1, 100, 127, 128, 129, 500, 511, 512, 513, 5000] {
        for (key, is_json) in [(None, true), (Some("k"), false), (Some(&*"k".repeat(200)), true)] {
            let message = message(key, None, &vec![b'1'; size], is_json);
            let incoming = Incoming::of(message.clone());
            assert_eq!(incoming.digest, Digest::of(key, "a"), "{size}");
            assert_eq!(incoming.content, content_of(message.parts()), "{size}");
            assert_eq!(incoming.lane, key.map(super::lane_of), "{size}");
            assert_eq!(incoming.content.as_bytes().len(), if is_json { 15 } else { 16 });
        }
    }
}

#[test]
fn a_delay_is_hashed_as_its_shortest_decimal__d5() {
    for (value, text) in [
        (5.0, "5.0"),
        (-0.0, "-0.0"),
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e-300, "1e-300"),
        (1e16, "1e+16"),
        (253_402_300_799_999.0, "253402300799999.0"),
    ] {
        assert_eq!(float(value), text);
    }
}
