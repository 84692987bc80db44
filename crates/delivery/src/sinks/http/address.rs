//! The address of a webhook: `http://HOST/PATH` or `https://HOST/PATH` (rule D10). It is the operator's, and the same for each
//! message (D12).

use std::fmt;

use hyper::Uri;
use hyper::http::uri::Authority;

use crate::base::display::{quoted, write_percent};
use crate::base::error::DeliveryError;

const FORM: &str = "http://HOST/PATH or https://HOST/PATH";
const SHOWN: usize = 200;

/// The address to which messages are sent. Its `Debug` shows only the host, because path and query may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpAddress(Uri);

impl HttpAddress {
    /// Reads the address.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the text is not an address. It does not show a user and password.
    pub(crate) fn parse(text: &str) -> Result<Self, DeliveryError> {
        let usage = |what: &str| DeliveryError::Usage(format!("{} {what}", without_secrets(text)));
        let rest = text.split_once("//").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
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
        if text.contains(['{', '}']) {
            return Err(usage(
                "has a brace, and an address is the same for all messages: set a named destination for each receiver, or write \
                 %7B and %7D",
            ));
        }
        let uri: Uri = encoded(text).parse().map_err(|_| none())?;
        let port = match uri.authority().map(|it| (it.host().len() < it.as_str().len(), it.port_u16())) {
            Some((true, port)) => Some(port.ok_or_else(none)?),
            _ => None,
        };
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        if !has_scheme || uri.host().is_none_or(str::is_empty) || port == Some(0) {
            return Err(usage(&format!("names no host, or port 0: write {FORM}")));
        }
        Ok(Self(uri))
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }

    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or("")
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpAddress").field(&self.0.authority().map(Authority::as_str)).finish()
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
        assert_eq!(HttpAddress::parse("http://host/ü?ü").unwrap().0.path(), "/%C3%BC");
    }

    #[test]
    fn a_brace_is_wrong_usage_and_the_error_names_destinations__d12() {
        for text in ["http://{key}.h/", "http://h/{Key}", "http://h/{key", "http://h?id}", "http://h/../{id}"] {
            let Err(DeliveryError::Usage(error)) = HttpAddress::parse(text) else { panic!("{text:?}") };
            assert!(error.contains("has a brace") && error.contains("set a named destination"), "{error}");
        }
        assert_eq!(HttpAddress::parse("https://h/%7Bkey%7D").unwrap().0.path(), "/%7Bkey%7D");
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
