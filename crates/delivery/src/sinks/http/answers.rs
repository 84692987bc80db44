//! The verdict for each answer of a receiver (rule D6).
//!
//! | answer | counts as |
//! |---|---|
//! | 200 to 299 | delivered, even if the rest of the answer fails |
//! | 500, 501 | failed |
//! | 408, 425, 429, 502 and above; no answer, or an answer that is not HTTP | unanswered |
//! | 410, and those that the settings name | refused for good |
//! | any other, also a redirect | refused |
//! | the connection is refused, the name is not found, TLS fails | unreachable |

use std::io;
use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper_util::client::legacy::Error;

use super::masking::Sent;
use super::proxy::ProxyError;
use super::tls_errors;
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::display::is_escaped;
use crate::sinks::Verdict;

/// How many characters of an answer are shown.
const SHOWN: usize = 200;
/// How many bytes of an answer are read. After a longer answer the connection is closed.
const MOST_BYTES: usize = 1 << 16;
/// How long the rest of an answer may take after the status has come.
const REST: Duration = Duration::from_millis(250);
/// If a receiver asks for a longer pause, it is asked again after this time.
const LONGEST_PAUSE_MS: u64 = 3_600_000;

pub(super) async fn verdict_of(response: Response<Incoming>, sent: &Sent, final_statuses: &[u16]) -> Verdict {
    let status = response.status();
    let retry_after_ms = retry_after_ms(response.headers(), now());
    let mut text = Vec::new();
    // If the answer is not read to its end, the connection is closed.
    let is_whole = tokio::time::timeout(REST, read(response.into_body(), &mut text)).await.unwrap_or(false);
    if status.is_success() {
        return Verdict::Delivered;
    }
    let what = if status.is_redirection() { ", a redirect, which is not followed" } else { "" };
    let text = match on_one_line(&text) {
        _ if sent.is_in(&text, !is_whole) => ": its text holds a secret".to_owned(),
        line if line.trim().is_empty() => ", without a text".to_owned(),
        line => format!(": {line}"),
    };
    let reason = format!("status {}{what}{text}", status.as_u16());
    match status.as_u16() {
        410 => Verdict::Final(reason),
        it if final_statuses.contains(&it) => Verdict::Final(reason),
        500 | 501 => Verdict::Failed { reason, retry_after_ms },
        408 | 425 | 429 | 502.. => Verdict::Unanswered { reason, retry_after_ms },
        _ => Verdict::Refused(reason),
    }
}

pub(super) fn verdict_without(error: &Error) -> Verdict {
    let reason = reason_of(error);
    if error.is_connect() {
        Verdict::Unreachable { reason, retry_after_ms: None }
    } else {
        Verdict::Unanswered { reason, retry_after_ms: None }
    }
}

/// Reads the beginning of an answer. Returns whether it is the whole answer.
async fn read(mut body: Incoming, text: &mut Vec<u8>) -> bool {
    let mut bytes = 0;
    while bytes < MOST_BYTES {
        match body.frame().await {
            None => return bytes == text.len(),
            Some(Err(_)) => return false,
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                let shown = (4 * SHOWN).saturating_sub(text.len()).min(data.len());
                text.extend_from_slice(&data[..shown]);
                bytes += data.len();
            }
        }
    }
    false
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(SystemWallTime.now_us() as u64)
}

/// The pause that the receiver asks for. `None` if it is over already, or cannot be read.
fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause_ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000)
    } else {
        let pause = httpdate::parse_http_date(text).ok()?.duration_since(now).ok()?;
        u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
    };
    (pause_ms > 0).then_some(pause_ms.min(LONGEST_PAUSE_MS))
}

/// Joins the texts of the causes of an error. No text contains the address, which may hold a secret.
pub(super) fn reason_of(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(error) = sentence_of(error) {
        return error;
    }
    let mut texts: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        let text = text.split_once(" (os error").map_or(&*text, |(words, _)| words).to_owned();
        if !texts.iter().any(|other| other.contains(&text)) {
            texts.push(text);
        }
        source = cause.source();
    }
    if texts.is_empty() { error.to_string() } else { on_one_line(texts.join(": ").as_bytes()) }
}

/// The sentence for the error of TLS or of the proxy among the causes, if there is one.
fn sentence_of(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ProxyError>() {
            return Some(error.to_string());
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            let sentence = tls_errors::sentence(error); // it may have names by the receiver
            return Some(sentence.chars().map(|c| if is_escaped(c) { ' ' } else { c }).collect());
        }
        if error.to_string() == "tls handshake eof" {
            return Some(tls_errors::CLOSED.to_owned());
        }
        // An error of input and output is not a cause of itself, but has one within.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = inner.map(|error| error as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    None
}

/// The first characters on one line, without characters that control a terminal.
fn on_one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().take(SHOWN).map(|c| if is_escaped(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause_ms(text: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().unwrap());
        retry_after_ms(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)) // 08:49:37
    }

    #[test]
    fn a_pause_is_given_in_seconds_or_as_a_date__d6() {
        assert_eq!(pause_ms("2"), Some(2_000));
        assert_eq!(pause_ms(" 120 "), Some(120_000));
        assert_eq!(pause_ms("Sun, 06 Nov 1994 08:49:40 GMT"), Some(3_000));
        assert_eq!(pause_ms("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60_000));
    }

    #[test]
    fn a_pause_of_nothing_or_of_nonsense_is_none_and_a_long_one_is_cut__d6() {
        for text in ["0", "", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 05 Nov 1994 08:49:37 GMT"] {
            assert_eq!(pause_ms(text), None, "{text}");
        }
        for text in ["86400", "99999999999999999999999", "Sat, 06 Nov 2094 08:49:37 GMT"] {
            assert_eq!(pause_ms(text), Some(LONGEST_PAUSE_MS), "{text}");
        }
    }

    #[test]
    fn an_answer_is_shown_on_one_line_without_what_steers_a_terminal() {
        let shown = on_one_line("schön\n\u{1b}[31m\u{202e}\u{fffd}".as_bytes());
        assert_eq!(shown, "schön  [31m \u{fffd}");
        assert_eq!(on_one_line("é".repeat(500).as_bytes()).chars().count(), SHOWN);
    }
}
