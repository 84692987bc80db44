//! The three hashes of a message, by `BLAKE2b`: of its name, its lane and its content.
//!
//! The bytes that are hashed belong to the store's format: they never change.
//!
//! | hash | length | bytes |
//! |---|---|---|
//! | name, without a key | 16 | `\0`, then the id |
//! | name, with a key | 16 | the number of characters of the key, `:`, the key, the id |
//! | lane | 8 | the key |
//! | content | 15 (JSON), 16 (bytes) | due time in ms, or `+` and the delay; a space; the payload |
//!
//! The hashes of small messages are computed side by side, by the vector instructions of the processor.

#![forbid(unsafe_code)]

use blake2b_simd::Params;
use blake2b_simd::many::{HashManyJob, hash_many};
use smallvec::SmallVec;

use crate::delivery::message::{Content, Digest, Message};

/// The hashes of one message.
pub(crate) struct All {
    pub(crate) digest: Digest,
    pub(crate) content: Content,
    pub(crate) lane: Option<i64>,
}

/// Room for the text of a name without an allocation.
type NameText = SmallVec<[u8; 128]>;

fn params(length: usize) -> Params {
    let mut params = Params::new();
    params.hash_length(length);
    params
}

fn name_text(key: Option<&str>, id: &str) -> NameText {
    let mut text = NameText::new();
    match key {
        None => text.push(0),
        Some(key) => {
            text.extend_from_slice(itoa::Buffer::new().format(key.chars().count()).as_bytes());
            text.push(b':');
            text.extend_from_slice(key.as_bytes());
        }
    }
    text.extend_from_slice(id.as_bytes());
    text
}

/// Of `(key, id)`.
pub(crate) fn name_of(key: Option<&str>, id: &str) -> Digest {
    Digest(sixteen(params(16).hash(&name_text(key, id)).as_bytes()))
}

/// Of a key.
pub(crate) fn lane_of(key: &str) -> i64 {
    first_64(params(8).hash(key.as_bytes()).as_bytes())
}

/// Of due time or delay, and payload.
pub(crate) fn content_of(message: &Message) -> Content {
    let (length, prefix) = content_prefix(message);
    let mut state = params(length).to_state();
    let hash = state.update(&prefix).update(message.body.payload()).finalize();
    content(hash.as_bytes())
}

/// All three at once. A large payload is hashed on its own, because the others would have nothing to do beside it.
pub(crate) fn all_of(message: &Message) -> All {
    const SMALL: usize = 512;
    let (key, payload) = (message.body.key(), message.body.payload());
    let name = name_text(key, message.body.id());
    let (length, mut text) = content_prefix(message);
    if payload.len() > SMALL {
        let lane = key.map(lane_of);
        return All { digest: Digest(sixteen(params(16).hash(&name).as_bytes())), content: content_of(message), lane };
    }
    text.extend_from_slice(payload);
    let (of_name, of_lane, of_content) = (params(16), params(8), params(length));
    let mut jobs = [
        HashManyJob::new(&of_name, &name),
        HashManyJob::new(&of_content, &text),
        HashManyJob::new(&of_lane, key.unwrap_or("").as_bytes()),
        HashManyJob::new(&of_lane, b""), // four at once take less time than three
    ];
    let used = if key.is_some() { 4 } else { 2 };
    hash_many(jobs[..used].iter_mut());
    All {
        digest: Digest(sixteen(jobs[0].to_hash().as_bytes())),
        content: content(jobs[1].to_hash().as_bytes()),
        lane: key.map(|_| first_64(jobs[2].to_hash().as_bytes())),
    }
}

/// The length of the digest, and what is hashed before the payload.
fn content_prefix(message: &Message) -> (usize, SmallVec<[u8; 640]>) {
    let mut text = SmallVec::new();
    match message.delay_ms {
        None => text.extend_from_slice(itoa::Buffer::new().format(message.due_ms).as_bytes()),
        Some(delay_ms) => {
            text.push(b'+');
            text.extend_from_slice(float(delay_ms).as_bytes());
        }
    }
    text.push(b' ');
    (if message.body.is_json() { 15 } else { 16 }, text)
}

/// The shortest decimal that reads back the same, with a fraction or an exponent of two digits: `5.0`, `1e-05`.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |positive| ('-', positive));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

fn content(hash: &[u8]) -> Content {
    let mut bytes = [0; 16];
    bytes[..hash.len()].copy_from_slice(hash);
    Content { bytes, len: hash.len() as u8 }
}

fn sixteen(hash: &[u8]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(hash);
    bytes
}

fn first_64(hash: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(hash);
    i64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::{Body, Incoming, lane_of};

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
        assert_eq!(hex(&name_of(None, "a").0), "81b36a4468495f04ff472115cf189272");
        assert_eq!(hex(&name_of(Some("é😀"), "a").0), "89e817d4c69408b10c21b9c9abf67f7d");
        assert_eq!(name_of(None, "a").number(), i64::from_le_bytes([0x81, 0xb3, 0x6a, 0x44, 0x68, 0x49, 0x5f, 4]));
        assert_eq!(lane_of(Some("é😀")), Some(-676_998_137_607_398_297));
        assert_eq!(lane_of(None), None);
        for (message, expected) in [
            (message(None, None, b"1", true), "8cc1ebd7368f734f6dfc5556775d0c"),
            (message(None, None, b"1", false), "1d59f0d544b6f8cb00cafe80ed03f3e3"),
            (message(None, Some(5.0), b"1", true), "d5f884b4defcf2ea94bb8fa5eec0f9"),
            (message(None, Some(1e-5), b"1", true), "c724291cd2e8f896ad1387a123e5b6"),
        ] {
            assert_eq!(hex(Content::of(&message).as_bytes()), expected, "{message:?}");
        }
    }

    #[test]
    fn names_without_a_key_and_with_another_cut_are_different_names__d5() {
        let names = [name_of(None, "ab"), name_of(Some("a"), "b"), name_of(Some("ab"), ""), name_of(Some(""), "ab")];
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
                assert_eq!(incoming.digest, name_of(key, "a"), "{size}");
                assert_eq!(incoming.content, content_of(&message), "{size}");
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
}
