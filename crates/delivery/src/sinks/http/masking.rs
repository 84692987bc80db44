//! Leaves out the answer of a receiver if it holds a secret (rule D12). A receiver may echo the request, and the text of an error
//! is in the log, in dead letters and on pages.
//!
//! Secrets are path and query of the address, each value of the operator's headers, the signature, and the secrets that sign: with 4
//! bytes or more, and each part of them with 8 bytes or more, such as the token in `Bearer TOKEN`. A receiver escapes the text that it
//! echoes, so the text is also looked at without the escapes of JSON, HTML and addresses.
//!
//! Example: with the header `Authorization: Bearer a+/s3cret`, neither `{"authorization":"Bearer a+\/s3cret"}` nor
//! `bad token a%2B%2Fs3cret` is shown.

use std::sync::Arc;

use hyper::header::HeaderValue;
use memchr::memmem;

use super::webhook::Webhook;

/// A shorter value, or a shorter beginning of one, is shown: it is too common to be a secret.
const LEAST: usize = 4;
/// The same for a part of a value.
const LEAST_PART: usize = 8;
const LONGEST_ESCAPE: usize = 8;
const BETWEEN_PARTS: [u8; 6] = *b" ;,=&?";
const NAMED: [(&[u8], u8); 5] =
    [(b"&quot;", b'"'), (b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&apos;", b'\'')];

/// The secrets of a request, which no error may show.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) webhook: Arc<Webhook>,
    pub(super) signature: Option<HeaderValue>,
}

impl Sent {
    /// Whether the text holds a secret. `is_cut`: the text goes on, so its end may be the beginning of one.
    pub(super) fn is_in(&self, text: &[u8], is_cut: bool) -> bool {
        let text = &text[..text.len() - if is_cut { length_of_cut_escape(text) } else { 0 }];
        let texts = [text.to_vec(), unescaped(text)].map(|it| without_plus(&it));
        let holds = |text: &[u8], value: &[u8]| {
            memmem::find(text, value).is_some()
                || is_cut && (LEAST..value.len()).any(|length| text.ends_with(&value[..length]))
        };
        self.values().iter().any(|value| texts.iter().any(|text| holds(text, value)))
    }

    /// The secrets and their parts, as they are and without escapes.
    fn values(&self) -> Vec<Vec<u8>> {
        let Webhook { address, headers, secrets, .. } = &*self.webhook;
        let mut values: Vec<&[u8]> = headers.values().chain(&self.signature).map(HeaderValue::as_bytes).collect();
        values.extend(secrets.iter().map(|secret| secret.text().as_bytes()));
        values.extend([address.uri().path()].into_iter().chain(address.uri().query()).map(str::as_bytes));
        let parts = values.iter().flat_map(|value| value.split(|byte| BETWEEN_PARTS.contains(byte)));
        let parts: Vec<_> = parts.filter(|part| part.len() >= LEAST_PART).collect();
        values.retain(|value| value.len() >= LEAST);
        let all = values.into_iter().chain(parts);
        all.flat_map(|value| [value.to_vec(), unescaped(value)]).map(|value| without_plus(&value)).collect()
    }
}

/// In an address a `+` may be a space.
fn without_plus(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()
}

fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let [first, ..] = text {
        let (byte, length) = escaped(text).unwrap_or((*first, 1));
        plain.push(byte);
        text = &text[length..];
    }
    plain
}

/// How many bytes at the end of the text are the beginning of an escape.
fn length_of_cut_escape(text: &[u8]) -> usize {
    let end = &text[text.len().saturating_sub(LONGEST_ESCAPE - 1)..];
    let cut = end.iter().rposition(|byte| b"\\%&".contains(byte)).filter(|at| escaped(&end[*at..]).is_none());
    cut.map_or(0, |at| end.len() - at)
}

/// Reads an escape at the start of the text: `%2F`, `\u002f`, `\/`, `&#47;`, `&#x2f;` or a name in HTML. Returns the byte and the
/// length of the escape.
fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    let number = |digits: &[u8], radix| u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
    match text {
        [b'%', digits @ ..] => Some((number(digits.get(..2)?, 16)?, 3)),
        [b'\\', b'u', digits @ ..] => Some((number(digits.get(..4)?, 16)?, 6)),
        [b'\\', byte, ..] => Some((*byte, 2)),
        [b'&', b'#', ..] => {
            let end = text.iter().take(LONGEST_ESCAPE).position(|byte| *byte == b';')?;
            let byte = match &text[2..end] {
                [b'x' | b'X', digits @ ..] => number(digits, 16),
                digits => number(digits, 10),
            };
            Some((byte?, end + 1))
        }
        [b'&', ..] => NAMED.iter().find(|(name, _)| text.starts_with(name)).map(|(name, byte)| (*byte, name.len())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn sent(url: &str, headers: &[(&str, &str)]) -> Sent {
        let webhook = Webhook::to(url).unwrap().with_secret(SECRET).unwrap();
        let with = |webhook: Webhook, (name, value): &(&str, &str)| webhook.with_header(name, value).unwrap();
        let webhook = headers.iter().fold(webhook, with);
        let signature = HeaderValue::from_static("v1,QCc1C0FgUpxfSJy5BvEGVPJ/27RP8AwadWr57Nd93Gc=");
        Sent { webhook: Arc::new(webhook), signature: Some(signature) }
    }

    fn assert_all(sent: &Sent, is_in: bool, is_cut: bool, texts: &[&str]) {
        for text in texts {
            assert_eq!(sent.is_in(text.as_bytes(), is_cut), is_in, "{text}");
        }
    }

    #[test]
    fn the_example_holds__d12() {
        let sent = sent("http://host/", &[("Authorization", "Bearer a+/s3cret")]);
        let echoed = [
            r#"{"authorization":"Bearer a+\/s3cret"}"#,
            "bad token a%2B%2Fs3cret",
            r"line 1\na+/s3cretline 3",
            "line 1\na+/s3cretline 3",
        ];
        assert_all(&sent, true, false, &echoed);
        assert_all(&sent, false, false, &["the token is no Bearer token", "", "/", "http://host/"]);
    }

    #[test]
    fn a_value_is_found_in_each_way_in_which_receivers_write_it__d12() {
        let sent = sent("http://host/", &[("x-key", r#"p"w\x&y<z> /+%'="#)]);
        let echoed = [
            r#"p"w\x&y<z> /+%'="#,
            r#"p\"w\\x&y<z> /+%'="#,
            r#"p\"w\\x\u0026y\u003cz\u003E \/+%'="#,
            r"p&quot;w\x&amp;y&lt;z&gt; /+%&apos;=",
            r"p&#34;w&#92;x&#38;y&#x3c;z&#X3E;&#32;/&#43;%&#x27;=",
            "p%22w%5Cx%26y%3cz%3E%20%2F%2B%25%27%3D",
            "p%22w%5cx%26y%3Cz%3E+%2F%2B%25%27%3D",
        ];
        assert_all(&sent, true, false, &echoed);
        assert_all(&sent, false, false, &[r#"p"w\x&y<z> /+%'"#, "not the whole value"]);
    }

    #[test]
    fn parts_of_values_signatures_secrets_path_and_query_are_found__d12() {
        let sent = sent(
            "http://host/hooks/T%C3%BC%20r?token=t0ken%20t0ken",
            &[("Cookie", "session=0123456789abcdef; theme=dark"), ("x-tenant", "17"), ("x-empty", "")],
        );
        let echoed = [
            r#"{"session": "0123456789abcdef", "theme": "dark"}"#,
            "QCc1C0FgUpxfSJy5BvEGVPJ/27RP8AwadWr57Nd93Gc= is wrong",
            "I have whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "Cannot POST /hooks/T%C3%BC%20r",
            "Cannot POST /hooks/Tü r",
            "no t0ken t0ken, and no t0ken",
        ];
        assert_all(&sent, true, false, &echoed);
        assert_all(&sent, false, false, &["tenant 17 is unknown", "no t0ken, and no hooks", r#"{"theme": "dark"}"#]);
    }

    #[test]
    fn where_a_text_is_cut_the_beginning_of_a_secret_is_found__d12() {
        let sent = sent("http://host/", &[("Authorization", "Bearer s3/cret-token")]);
        let cut = ["you: Bearer s3", "you: Bearer s3%2", "you: Bearer s3\\u00", "you: Bearer s3\\", "you: s3/cret"];
        assert_all(&sent, true, true, &cut);
        assert_all(&sent, false, false, &["you: Bearer s3", "you: Bear", "you: s3/cr"]);
        assert_all(&sent, false, true, &["you: Bea", "you: Beaver", "s3", "100%", "%", ""]);
    }
}
