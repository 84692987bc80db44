//! Masks secrets in the answer of a receiver (rule D12). A receiver may echo the request, and the text of an error is
//! in the log, in dead letters and on pages.
//!
//! `***` replaces path and query of the address, each value of the operator's headers, the signature, and the secrets
//! that sign. It also replaces each part of these values with 8 bytes or more, such as the token in
//! `Bearer TOKEN` or the value in a cookie. A receiver escapes the text that it echoes, so each character is also found
//! in the form of JSON, HTML and addresses.
//!
//! Example: with the header `Authorization: Bearer a+/s3cret`, the answer `{"authorization":"Bearer a+\/s3cret"}` is shown as
//! `{"authorization":"***"}`, and `bad token a%2B%2Fs3cret` as `bad token ***`.

use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use smallvec::{SmallVec, smallvec};

use super::webhook::Webhook;

const MASK: &[u8] = b"***";
/// A value shorter than this is masked only as a whole word: `17` in `x-tenant: 17`, and not in `2017`.
const SHORT: usize = 4;
/// A shorter part of a value is shown: it is too common to be a secret.
const LEAST_PART: usize = 8;
const LONGEST_ESCAPE: usize = 8;
const BETWEEN_PARTS: [u8; 6] = *b" ;,=&?";
const NAMED: [(&[u8], u8); 5] =
    [(b"&quot;", b'"'), (b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&apos;", b'\'')];

/// The secrets of a request, which no error may show.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) webhook: Arc<Webhook>,
    pub(super) uri: Uri,
    pub(super) signature: Option<HeaderValue>,
}

impl Sent {
    /// The text without the secrets. `is_cut`: the text goes on, so its end may be the beginning of a secret.
    pub(super) fn mask(&self, text: &[u8], is_cut: bool) -> Vec<u8> {
        let values = self.values();
        let mut shown = Vec::with_capacity(text.len());
        let (mut at, mut is_masked) = (0, false);
        while at < text.len() {
            if let Some(end) = values.iter().filter_map(|value| end_of(value, text, at, is_cut)).max() {
                if !is_masked {
                    shown.extend_from_slice(MASK); // once for neighbours
                }
                (at, is_masked) = (end, true);
            } else {
                shown.push(text[at]);
                (at, is_masked) = (at + 1, false);
            }
        }
        shown
    }

    fn values(&self) -> Vec<Vec<u8>> {
        let Webhook { address, headers, secrets, .. } = &*self.webhook;
        let mut values: Vec<Vec<u8>> =
            headers.values().chain(&self.signature).map(|it| it.as_bytes().to_vec()).collect();
        values.extend(secrets.iter().map(|secret| secret.text().as_bytes().to_vec()));
        let path = Some(self.uri.path()).filter(|path| *path != "/");
        values.extend([path, self.uri.query()].into_iter().flatten().map(|text| text.as_bytes().to_vec()));
        // A receiver may show the address with another key.
        values.extend(address.texts().filter(|text| text.len() >= LEAST_PART).map(|text| text.as_bytes().to_vec()));
        let parts = values.iter().flat_map(|value| value.split(|byte| BETWEEN_PARTS.contains(byte)));
        let parts: Vec<Vec<u8>> = parts.filter(|part| part.len() >= LEAST_PART).map(<[u8]>::to_vec).collect();
        values.extend(parts);
        let plain: Vec<Vec<u8>> = values.iter().map(|value| unescaped(value)).collect();
        values.extend(plain);
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// The end of this value in the text, if it begins there.
fn end_of(value: &[u8], text: &[u8], at: usize, is_cut: bool) -> Option<usize> {
    let is_in_a_word = |one: Option<&u8>, other: Option<&u8>| {
        let is_of_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        value.len() < SHORT && is_of_word(one) && is_of_word(other)
    };
    if is_in_a_word(text[..at].last(), value.first()) {
        return None;
    }
    let mut ends: SmallVec<[usize; 4]> = smallvec![at];
    for byte in value {
        let mut next: SmallVec<[usize; 4]> = SmallVec::new();
        for end in ends {
            let rest = &text[end..];
            if is_cut && may_go_on(rest) {
                return Some(text.len());
            }
            next.extend(lengths_of(*byte, rest).into_iter().flatten().map(|length| end + length));
        }
        if next.is_empty() {
            return None;
        }
        next.sort_unstable();
        next.dedup();
        ends = next;
    }
    let end = ends.into_iter().max()?;
    (!is_in_a_word(value.last(), text.get(end))).then_some(end)
}

/// Whether the text ends here, but may go on with the wanted byte.
fn may_go_on(rest: &[u8]) -> bool {
    rest.is_empty() || rest.len() < LONGEST_ESCAPE && matches!(rest[0], b'\\' | b'%' | b'&') && escaped(rest).is_none()
}

/// The lengths with which this byte may be written at the start of the text: plain, behind a backslash, or escaped.
fn lengths_of(byte: u8, text: &[u8]) -> [Option<usize>; 3] {
    let is_itself = text.first() == Some(&byte) || (byte == b' ' && text.first() == Some(&b'+'));
    let is_behind_backslash = text.first() == Some(&b'\\') && text.get(1) == Some(&byte);
    let length = escaped(text).filter(|(found, _)| *found == byte).map(|(_, length)| length);
    [is_itself.then_some(1), is_behind_backslash.then_some(2), length]
}

/// Reads an escape at the start of the text: `%2F`, `\u002f`, `&#47;`, `&#x2f;` or a name in HTML. Returns the byte and
/// the length of the escape.
fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    let number = |digits: &[u8], radix| u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
    match text {
        [b'%', digits @ ..] => Some((number(digits.get(..2)?, 16)?, 3)),
        [b'\\', b'u', digits @ ..] => Some((number(digits.get(..4)?, 16)?, 6)),
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

/// Decodes the escapes of an address, because a receiver may show path and query decoded.
fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let [first, ..] = text {
        let (byte, length) = if *first == b'%' { escaped(text).unwrap_or((*first, 1)) } else { (*first, 1) };
        plain.push(byte);
        text = &text[length..];
    }
    plain
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
        let uri = webhook.address.uri_for(Some("k 1"), "a").unwrap();
        Sent { webhook: Arc::new(webhook), uri, signature: Some(signature) }
    }

    fn masked(sent: &Sent, text: &str) -> String {
        String::from_utf8(sent.mask(text.as_bytes(), false)).unwrap()
    }

    fn cut(sent: &Sent, text: &str) -> String {
        String::from_utf8(sent.mask(text.as_bytes(), true)).unwrap()
    }

    #[test]
    fn the_example_holds__d12() {
        let sent = sent("http://host/", &[("Authorization", "Bearer a+/s3cret")]);
        assert_eq!(masked(&sent, r#"{"authorization":"Bearer a+\/s3cret"}"#), r#"{"authorization":"***"}"#);
        assert_eq!(masked(&sent, "bad token a%2B%2Fs3cret"), "bad token ***");
        assert_eq!(masked(&sent, r"line 1\na+/s3cretline 3"), r"line 1\n***line 3");
        assert_eq!(masked(&sent, "the token is no Bearer token"), "the token is no Bearer token");
    }

    #[test]
    fn a_value_is_found_in_each_way_in_which_receivers_write_it__d12() {
        let sent = sent("http://host/", &[("x-key", r#"p"w\x&y<z> /+%'="#)]);
        for text in [
            r#"p"w\x&y<z> /+%'="#,
            r#"p\"w\\x&y<z> /+%'="#,
            r#"p\"w\\x\u0026y\u003cz\u003E \/+%'="#,
            r"p&quot;w\x&amp;y&lt;z&gt; /+%&apos;=",
            r"p&#34;w&#92;x&#38;y&#x3c;z&#X3E;&#32;/&#43;%&#x27;=",
            "p%22w%5Cx%26y%3cz%3E%20%2F%2B%25%27%3D",
            "p%22w%5cx%26y%3Cz%3E+%2F%2B%25%27%3D",
        ] {
            assert_eq!(masked(&sent, &format!("<{text}>")), "<***>");
        }
        assert_eq!(masked(&sent, r#"p"w\x&y<z> /+%'"#), r#"p"w\x&y<z> /+%'"#, "not the whole value");
    }

    #[test]
    fn parts_of_values_signatures_secrets_path_and_query_are_found__d12() {
        let sent = sent(
            "http://host/hooks/T%C3%BC r?token=t0ken%20t0ken".replace(' ', "%20").as_str(),
            &[("Cookie", "session=0123456789abcdef; theme=dark")],
        );
        for (text, shown) in [
            (r#"{"session": "0123456789abcdef", "theme": "dark"}"#, r#"{"session": "***", "theme": "dark"}"#),
            ("QCc1C0FgUpxfSJy5BvEGVPJ/27RP8AwadWr57Nd93Gc= is wrong", "***= is wrong"),
            ("I have whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "I have whsec_***"),
            ("Cannot POST /hooks/T%C3%BC%20r", "Cannot POST ***"),
            ("Cannot POST /hooks/Tü r?token=t0ken%20t0ken", "Cannot POST ***?***"),
            ("no t0ken t0ken, and no t0ken", "no ***, and no t0ken"),
        ] {
            assert_eq!(masked(&sent, text), shown);
        }
    }

    #[test]
    fn an_address_that_is_made_from_the_key_is_found_whole_and_in_parts__d12() {
        let sent = sent("http://host/hooks/t0ken/{key}/in?name={key}&s=s3cret", &[]);
        for (text, shown) in [
            ("Cannot POST /hooks/t0ken/k%201/in", "Cannot POST ***"),
            ("Cannot POST /hooks/t0ken/k 1/in?name=k 1&s=s3cret", "Cannot POST ***?***"),
            ("/hooks/t0ken/other has no name", "***other has no name"),
            ("the customer k 1", "the customer k 1"),
        ] {
            assert_eq!(masked(&sent, text), shown);
        }
    }

    #[test]
    fn a_short_value_is_found_where_it_is_a_word__d12() {
        let sent = sent("http://host/in", &[("x-tenant", "17"), ("x-empty", "")]);
        assert_eq!(masked(&sent, "17 in 2017: tenant 17, x17, 17th"), "*** in 2017: tenant ***, x17, 17th");
        assert_eq!(masked(&sent, "http://host/in is closed"), "http://host*** is closed");
    }

    #[test]
    fn where_a_text_is_cut_the_beginning_of_a_secret_is_found__d12() {
        let sent = sent("http://host/", &[("Authorization", "Bearer s3/cret-token")]);
        for text in ["you: Bearer s3", "you: Bearer s3%2", "you: Bearer s3\\u00", "you: Bearer s3\\", "you: B"] {
            assert_eq!(cut(&sent, text), "you: ***", "{text}");
        }
        assert_eq!(masked(&sent, "you: B"), "you: B", "it is whole");
        assert_eq!(cut(&sent, "you: Beaver"), "you: Beaver");
    }
}
