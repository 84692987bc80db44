//! The address of a webhook: `http://HOST/PATH` or `https://HOST/PATH` (rule D10). In the path and the query, `{key}`
//! and `{id}` stand for those of the message. The host is always the operator's (D12).

use std::fmt;

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery};

use crate::base::display::{quoted, write_percent};
use crate::base::error::DeliveryError;

const FORM: &str = "http://HOST/PATH or https://HOST/PATH";
const SHOWN: usize = 200;

/// The address to which messages are sent. Its `Debug` shows only the host, because path and query may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpAddress {
    /// With [`SAMPLE`] in each place for a key or an id.
    uri: Uri,
    /// The path and the query, if they have such a place.
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Key,
    Id,
}

const KEY: &str = "{key}";
const ID: &str = "{id}";
const SAMPLE: &str = "x";

impl HttpAddress {
    /// Reads the address.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the text is not an address. It does not show a user and password.
    pub(crate) fn parse(text: &str) -> Result<Self, DeliveryError> {
        let usage = |what: &str| DeliveryError::Usage(format!("{} {what}", without_secrets(text)));
        let rest = text.split_once("//").map_or("", |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') || text.split(['?', '#']).next().is_some_and(has_user) {
            return Err(usage(USER));
        }
        if text.chars().any(|c| {
            c == '#'
                || c.is_whitespace()
                || quoted(c.encode_utf8(&mut [0; 4]), 1).len() > 2 + c.len_utf8() && c != '\\' && c != '\''
        }) {
            return Err(usage("contains a space, a # or a control character: write it as %20, %23 and so on"));
        }
        let none = || usage(&format!("is no address: write {FORM}, with a number if there is a port"));
        if authority.contains(['{', '}']) {
            return Err(usage(&format!("has a brace in its host: {KEY} and {ID} may stand in the path and the query")));
        }
        let parts = parts_of(path)
            .ok_or_else(|| usage(&format!("has a brace that is not of {KEY} or {ID}: write others as %7B and %7D")))?;
        let uri: Uri = encoded(&text.replace(KEY, SAMPLE).replace(ID, SAMPLE)).parse().map_err(|_| none())?;
        let port = match uri.authority().map(|it| (it.host().len() < it.as_str().len(), it.port_u16())) {
            Some((true, port)) => Some(port.ok_or_else(none)?),
            _ => None,
        };
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        if !has_scheme || uri.host().is_none_or(str::is_empty) || port == Some(0) {
            return Err(usage(&format!("names no host, or port 0: write {FORM}")));
        }
        if !parts.is_empty() && has_dots(uri.path()) {
            return Err(usage(&format!("has . or .. as a part of its path, which can't stand beside {KEY} or {ID}")));
        }
        Ok(Self { uri, parts })
    }

    /// The address for a message.
    ///
    /// # Errors
    /// The reason, if there can be none. It shows nothing of the address.
    pub(super) fn uri_for(&self, key: Option<&str>, id: &str) -> Result<Uri, String> {
        if self.parts.is_empty() {
            return Ok(self.uri.clone());
        }
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(own) => text.push_str(own),
                Part::Key => write_value(&mut text, key.ok_or_else(|| wanted("key", "is missing"))?, "key")?,
                Part::Id => write_value(&mut text, id, "id")?,
            }
        }
        if has_dots(text.split('?').next().unwrap_or("")) {
            return Err("its key or id has . or .. as a part of the path, which names another place".to_owned());
        }
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query =
            Some(PathAndQuery::try_from(text).map_err(|_| "its key or id is too long for an address".to_owned())?);
        Uri::from_parts(parts).map_err(|_| "its key or id is too long for an address".to_owned())
    }

    /// Path and query as the operator wrote them, without the places for a key or an id.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
    }

    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or("")
    }

    pub(super) fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }
}

/// The parts of path and query; none if no key or id is in them. `None`: there is another brace.
fn parts_of(path: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = path;
    while let Some(at) = rest.find(['{', '}']) {
        let (text, from) = rest.split_at(at);
        let (part, length) = match from {
            _ if from.starts_with(KEY) => (Part::Key, KEY.len()),
            _ if from.starts_with(ID) => (Part::Id, ID.len()),
            _ => return None,
        };
        parts.extend([Part::Text(encoded(text)), part]);
        rest = &from[length..];
    }
    if !parts.is_empty() {
        parts.push(Part::Text(encoded(rest)));
        if path.starts_with('?') {
            parts.insert(0, Part::Text("/".to_owned()));
        }
    }
    Some(parts)
}

/// Whether a part of the path is `.` or `..`: on their way, requests are sent to another place for these. Some servers
/// take an escaped slash, or a backslash, as a slash, and end a part at a semicolon.
fn has_dots(path: &str) -> bool {
    let path = path.to_ascii_uppercase().replace("%2F", "/").replace("%5C", "/").replace("%3B", ";");
    path.split('/').any(|part| matches!(part.split(';').next(), Some("." | "..")))
}

fn wanted(what: &str, fault: &str) -> String {
    format!("its {what} {fault}, and the address is made from it")
}

/// Writes a key or an id as one part of a path or a query.
fn write_value(out: &mut String, value: &str, what: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(wanted(what, "is empty"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    write_percent(out, value.as_bytes(), is_plain);
    Ok(())
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpAddress").field(&self.uri.authority().map(Authority::as_str)).finish()
    }
}

const USER: &str = "contains a user, which is not sent: leave it out, and give a header from the environment, as \
    --webhook-header 'Authorization: env:VARIABLE', with \"Basic \" and the base64 of USER:PASSWORD in VARIABLE";

/// Whether a slash in a password makes the @ seem to be in the path: `me:s3/cret@host`.
fn has_user(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("//") else { return false };
    let Some((authority, path)) = rest.split_once('/') else { return false };
    let has_port = authority.rsplit_once(':').is_none_or(|(_, port)| {
        authority.ends_with(']') || (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    });
    !has_port && path.contains('@')
}

/// Writes characters beyond ASCII as a request does.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    write_percent(&mut out, text.as_bytes(), |byte| byte.is_ascii());
    out
}

/// The address, quoted and cut. It leaves out the text before the last @, the path and the query, because these may
/// hold a secret.
fn without_secrets(text: &str) -> String {
    let public = match (text.split_once(':'), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((before, host))) if before.len() > scheme.len() => format!("{scheme}://...@{host}"),
        _ => text.to_owned(),
    };
    let start = public.find("//").map_or(0, |at| at + 2);
    let end = public[start..].find(['/', '?', '#']).map_or(public.len(), |at| start + at + 1);
    let rest = if end < public.len() { "..." } else { "" };
    quoted(&format!("{}{rest}", &public[..end]), SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_addresses_are_taken__d10() {
        for text in
            ["https://host", "http://host:8080/@user/x?y=z@a", "http://[::1]:80/", "https://1.2.3.4/", "HTTP://a/'"]
        {
            assert!(HttpAddress::parse(text).is_ok(), "{text}");
        }
        assert_eq!(HttpAddress::parse("http://host/ü?ü").unwrap().uri.path(), "/%C3%BC");
    }

    #[test]
    fn a_key_and_an_id_stand_in_path_and_query__d10() {
        let made =
            |address: &str, key, id| HttpAddress::parse(address).unwrap().uri_for(key, id).map(|it| it.to_string());
        for (address, expected) in [
            (
                "http://h:8/{key}/ü/{id}?a={id}&b={key}",
                "http://h:8/a%2Fb%3F%23/%C3%BC/1%20%C3%A9%7B?a=1%20%C3%A9%7B&b=a%2Fb%3F%23",
            ),
            ("https://t?{id}", "https://t/?1%20%C3%A9%7B"),
            ("https://h/h{id}h", "https://h/h1%20%C3%A9%7Bh"),
            ("https://h/%7Bkey%7D", "https://h/%7Bkey%7D"),
        ] {
            assert_eq!(made(address, Some("a/b?#"), "1 é{"), Ok(expected.to_owned()));
        }
        let missing = "its key is missing, and the address is made from it";
        assert_eq!(made("http://h/{key}", None, "a"), Err(missing.to_owned()));
        assert_eq!(made("http://h/{id}", None, "a"), Ok("http://h/a".to_owned()));
        assert!(made("http://h/{key}", Some(""), "a").unwrap_err().contains("is empty"));
        let long = "a".repeat(70_000);
        assert!(made("http://h/{id}", None, &long).unwrap_err().contains("too long"));
        for (address, key, id) in [
            ("{key}", ".", "a"),
            ("a/{key}/b", "..", "a"),
            ("{key}{id}", ".", "."),
            (".{id}", "x", "."),
            ("a/{key}/b", "../../admin", "a"),
            ("a/{key}/b", "x/../..", "a"),
            ("a%2f{key}", "..", "a"),
            ("a/{key}/b", "..\\admin", "a"),
            ("a/{key};v=1", "..", "a"),
            ("a/{key}/b", "..;x", "a"),
        ] {
            let error = made(&format!("http://h/{address}"), Some(key), id).unwrap_err();
            assert!(error.contains("names another place"), "{address} {error}");
        }
        for (address, key) in
            [("{key}", "..."), ("?{key}", "../.."), ("a{key}", ".."), ("{key}", "%2e%2e"), ("{key}", "a..b/.c")]
        {
            assert!(made(&format!("http://h/{address}"), Some(key), "a").is_ok(), "{address} {key}");
        }
    }

    #[test]
    fn another_brace_is_wrong_usage__d10() {
        for (text, fault) in [
            ("http://{key}.h/", "has a brace in its host: {key} and {id} may stand in the path and the query"),
            ("http://h/{Key}", "has a brace that is not of {key} or {id}: write others as %7B and %7D"),
            ("http://h/{key", "has a brace that is not of {key} or {id}: write others as %7B and %7D"),
            ("http://h/id}", "has a brace that is not of {key} or {id}: write others as %7B and %7D"),
            ("http://h/../{id}", "has . or .. as a part of its path, which can't stand beside {key} or {id}"),
        ] {
            let Err(DeliveryError::Usage(error)) = HttpAddress::parse(text) else { panic!("{text:?}") };
            assert!(error.ends_with(fault), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_wrong_usage__d10() {
        for text in [
            "http:",
            "http://",
            "http:///path",
            "https:host/path",
            "http://host:port/",
            "http://host:99999/",
            "http://host:0/",
            "http://host:/",
            "http://[::1/",
            "http://ho st/",
            "http://host/a b",
            "http://host/a\nb",
            "http://host/\0",
            "http://host/#part",
            "http://host/\u{200b}",
            "ftp://host/",
            "",
            "/path",
            "http://ü/",
        ] {
            let Err(DeliveryError::Usage(error)) = HttpAddress::parse(text) else { panic!("{text:?}") };
            assert!(error.starts_with('\''), "{error}");
        }
    }

    #[test]
    fn a_wrong_address_is_shown_without_path_and_query__d12() {
        for (text, public) in [
            ("http://host/s3 cret", "'http://host/...'"),
            ("https:host/s3cret", "'https:host/...'"),
            ("http://host:port/?token=s3cret", "'http://host:port/...'"),
            ("http://host?token=s3cret#", "'http://host?...'"),
            ("http://host:99999", "'http://host:99999'"),
            ("http://ho st/", "'http://ho st/'"),
        ] {
            let Err(DeliveryError::Usage(error)) = HttpAddress::parse(text) else { panic!("{text:?}") };
            assert!(error.starts_with(&format!("{public} ")), "{error}");
        }
    }

    #[test]
    fn a_user_in_the_address_is_refused_and_not_shown__d10() {
        for text in ["https://me:s3cret@host/x", "https://s3cret@host", "https://me:s3/cret@host/x"] {
            let Err(DeliveryError::Usage(error)) = HttpAddress::parse(text) else { panic!("{text}") };
            assert!(
                error.contains("contains a user")
                    && error.contains("header from the environment")
                    && !error.contains("s3"),
                "{error}"
            );
        }
        assert_eq!(format!("{:?}", HttpAddress::parse("http://h:8/secret").unwrap()), "HttpAddress(Some(\"h:8\"))");
    }
}
