//! Errors of TLS as sentences, each with what to do.

use std::time::{Duration, SystemTime};

use httpdate::fmt_http_date;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

use super::certificates::is_of_an_authority;

/// How many names of a certificate are shown.
const NAMES: usize = 3;

pub(super) fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(_) if is_of_an_authority(error) => {
            "the receiver's certificate is self-signed, or an authority's own, and not trusted: add it to the \
             certificates of the system, or to a file of trusted ones that SSL_CERT_FILE names"
                .to_owned()
        }
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::InvalidMessage(_) => {
            "the receiver does not speak TLS at this port: is its address http:// or its port another one?".to_owned()
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON.to_owned(),
        error => format!("TLS failed ({error}): the log of the receiver may say why"),
    }
}

/// For the end of a connection, which the library has no own error for.
pub(super) const CLOSED: &str =
    "the receiver closed the connection before TLS began: is this its port for https, and what does its log say?";
const NOTHING_IN_COMMON: &str =
    "the receiver and this process have no version or cipher of TLS in common: let the receiver offer TLS 1.2 or 1.3";

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as Kind;
    match error {
        Kind::UnknownIssuer => "the receiver's certificate is signed by no trusted authority: add the authority's \
             certificate to those of the system, or to a file of trusted ones that SSL_CERT_FILE names; if it is \
             trusted, the receiver must also send the certificates between both"
            .to_owned(),
        Kind::ExpiredContext { time, not_after } => format!(
            "the receiver's certificate ended on {}, and this machine's clock says {}: renew the certificate, or set \
             the clock",
            date(*not_after),
            date(*time)
        ),
        Kind::NotValidYetContext { time, not_before } => format!(
            "the receiver's certificate begins on {}, and this machine's clock says {}: set the clock, or wait",
            date(*not_before),
            date(*time)
        ),
        Kind::NotValidForNameContext { expected, presented } => {
            let host = expected.to_str();
            let names: Vec<&str> = presented.iter().take(NAMES).map(|name| bare(name)).collect();
            let names = match (names.as_slice(), presented.len() > NAMES) {
                ([], _) => "no name".to_owned(),
                (names, is_more) => names.join(", ") + if is_more { " and others" } else { "" },
            };
            format!(
                "the receiver's certificate is for {names}, not for {host}: write the name of the certificate in the \
                 address, or make a certificate for {host}"
            )
        }
        Kind::InvalidPurpose | Kind::InvalidPurposeContext { .. } => {
            "the receiver's certificate is not for a server: make one with the extended key usage serverAuth".to_owned()
        }
        _ => "the receiver's certificate is damaged, or signed in a way that is not accepted: make a new one, with \
             ECDSA or RSA and SHA-256"
            .to_owned(),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => NOTHING_IN_COMMON.to_owned(),
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
            "the receiver requires a certificate of its client, and a webhook has none: let the receiver check a \
             header or the signature of a webhook secret"
                .to_owned()
        }
        AlertDescription::UnrecognisedName => {
            "the receiver does not serve the host name of the address by TLS: correct the address".to_owned()
        }
        alert => format!("the receiver ended TLS with the alert {alert:?}: its log may say why"),
    }
}

fn date(time: UnixTime) -> String {
    let most_s = 253_402_300_799; // of the year 9999, the last that can be shown
    fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs().min(most_s)))
}

/// `localhost` of `DnsName("localhost")`, at most as long as a host name.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')').trim_matches('"'));
    inner.get(..253).unwrap_or(inner)
}

#[cfg(test)]
mod tests {
    use rustls::{InvalidMessage, PeerIncompatible};

    use super::*;

    #[test]
    fn each_kind_has_a_remedy_and_nothing_of_the_library__d6() {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(784_111_777));
        let later = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
        for (error, said) in [
            (CertificateError::UnknownIssuer.into(), "no trusted authority: add"),
            (CertificateError::ExpiredContext { time: later, not_after: time }.into(), "1994 08:49:37 GMT, and"),
            (CertificateError::NotValidYetContext { time, not_before: later }.into(), "31 Dec 9999 23:59:59 GMT, and"),
            (CertificateError::InvalidPurpose.into(), "serverAuth"),
            (CertificateError::BadEncoding.into(), "is damaged, or signed in a way"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "does not speak TLS at this port"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "requires a certificate of its client"),
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "let the receiver offer TLS 1.2 or 1.3"),
            (Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered), "let the receiver offer TLS 1.2 or 1.3"),
            (Error::AlertReceived(AlertDescription::UnrecognisedName), "correct the address"),
            (Error::AlertReceived(AlertDescription::InternalError), "the alert InternalError: its log may say why"),
            (Error::DecryptError, "TLS failed (cannot decrypt peer's message): the log of"),
        ] {
            let sentence = sentence(&error);
            assert!(sentence.contains(said), "{error:?}: {sentence}");
        }
    }

    #[test]
    fn a_name_is_shown_bare__d6() {
        assert_eq!(
            ["DnsName(\"a.b\")", "IpAddress(127.0.0.1)", "DirectoryName"].map(bare),
            ["a.b", "127.0.0.1", "DirectoryName"]
        );
    }

    #[test]
    fn a_certificate_for_other_names_tells_some_of_them__d6() {
        let of = |count: usize| {
            let presented = (0..count).map(|number| format!("DnsName(\"{number}.example\")")).collect();
            sentence(
                &CertificateError::NotValidForNameContext { expected: "a.example".try_into().unwrap(), presented }
                    .into(),
            )
        };
        assert!(of(0).contains("is for no name, not for a.example: write"), "{}", of(0));
        assert!(of(2).contains("is for 0.example, 1.example, not for a.example: write"), "{}", of(2));
        assert!(of(9).contains("is for 0.example, 1.example, 2.example and others, not for"), "{}", of(9));
    }
}
