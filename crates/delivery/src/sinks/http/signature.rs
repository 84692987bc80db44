//! Signs a request as in the specification of Standard Webhooks, version 1.0.0 (rule D12).
//!
//! Example: the secret is `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`, the id `msg_1`, the time 1,674,087,231 and the body
//! `{}`. Then the text `msg_1.1674087231.{}` is signed. Ids of tickwheel are hexadecimal, so an id has no point in it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hyper::header::HeaderValue;
use ring::hmac;

use crate::base::error::DeliveryError;

const PREFIX: &str = "whsec_";
const LEAST: usize = 24;
const MOST: usize = 64;
const READER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A key that the receiver also has.
#[derive(Clone)]
pub(super) struct Secret {
    key: hmac::Key,
    /// As it was given, without `whsec_`.
    text: String,
}

impl Secret {
    /// Reads `whsec_...`.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`], which does not show the text.
    pub(super) fn parse(text: &str) -> Result<Self, DeliveryError> {
        let read = text.strip_prefix(PREFIX).and_then(|rest| Some((rest, READER.decode(rest).ok()?)));
        match read {
            Some((rest, bytes)) if (LEAST..=MOST).contains(&bytes.len()) => {
                Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), text: rest.to_owned() })
            }
            _ => Err(DeliveryError::Usage(format!(
                "a secret of webhooks is {PREFIX} and {LEAST} to {MOST} bytes in base64, and this one is not: \
                 echo {PREFIX}$(openssl rand -base64 32) makes one"
            ))),
        }
    }

    /// The base64 of the key. It must not be shown.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// The value of `webhook-signature`.
/// `body`: in parts.
pub(super) fn signatures(secrets: &[Secret], id: &str, timestamp_s: &str, body: &[&[u8]]) -> HeaderValue {
    let mut text = String::with_capacity(secrets.len() * 48);
    for Secret { key, .. } in secrets {
        let mut context = hmac::Context::with_key(key);
        for part in [id.as_bytes(), b".", timestamp_s.as_bytes(), b"."].iter().chain(body) {
            context.update(part);
        }
        text.push_str(if text.is_empty() { "v1," } else { " v1," });
        STANDARD.encode_string(context.sign(), &mut text);
    }
    let mut value = HeaderValue::from_str(&text).expect("base64");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_another_implementation__d12() {
        // By Python: b64encode(hmac.digest(b64decode("MfKQ..."), b'msg_1.1674087231.{}', "sha256"))
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let both = [secret.clone(), secret];
        let one = "v1,QCc1C0FgUpxfSJy5BvEGVPJ/27RP8AwadWr57Nd93Gc=";
        assert_eq!(signatures(&both[..1], "msg_1", "1674087231", &[b"{}"]), one);
        assert_eq!(signatures(&both, "msg_1", "1674087231", &[b"{", b"}"]), format!("{one} {one}"));
    }

    #[test]
    fn a_secret_has_its_prefix_and_its_size_and_is_not_shown__d12() {
        let of = |size: usize| format!("{PREFIX}{}", STANDARD.encode(vec![7; size]));
        for text in [of(24), of(64), of(32).trim_end_matches('=').to_owned()] {
            assert!(Secret::parse(&text).is_ok(), "{text}");
        }
        for text in [of(23), of(65), of(32)[6..].to_owned(), "whsec_".into(), "whsec_s3cret!".into(), String::new()] {
            let Err(DeliveryError::Usage(error)) = Secret::parse(&text) else { panic!("{text}") };
            assert!(
                error.starts_with("a secret of webhooks is whsec_ and 24 to 64 bytes") && !error.contains("s3cret")
            );
        }
    }
}
