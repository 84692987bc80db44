//! The three hashes of a message, by BLAKE2b: of its name, its lane and its content.
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
    ];
    let jobs = if key.is_some() { &mut jobs[..] } else { &mut jobs[..2] };
    hash_many(jobs.iter_mut());
    All {
        digest: Digest(sixteen(jobs[0].to_hash().as_bytes())),
        content: content(jobs[1].to_hash().as_bytes()),
        lane: jobs.get(2).map(|job| first_64(job.to_hash().as_bytes())),
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
