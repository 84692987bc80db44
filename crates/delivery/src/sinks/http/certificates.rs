//! Checks the certificate of a receiver with the certificates of the system, of `SSL_CERT_FILE`, or of a
//! named destination.
//!
//! A receiver within a network often has a certificate that it signed itself, and the operator has made this
//! certificate trusted. Many such certificates say that they may sign others too. The usual check takes them for an
//! authority, and refuses them as the certificate of a receiver. This module accepts exactly the trusted certificate,
//! for its names and its time.

use std::env;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_native_certs::{ErrorKind, load_certs_from_paths};

use crate::base::display::quoted;
use crate::base::error::DeliveryError;

const NAMING: &str = "SSL_CERT_FILE";
const MOST_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(super) struct Trusted {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// Reads the certificates of the system, or those that the environment names. Some of the system may be unusable,
    /// but none of a file that is named.
    pub(super) fn read() -> Result<Self, DeliveryError> {
        if let Some(path) = env::var_os(NAMING) {
            check_named(Path::new(&path))?;
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs.iter().cloned());
        Self::of(roots, found.certs).map_err(|_| {
            let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
            DeliveryError::Usage(format!(
                "the system has no certificates to check an https address by{why}: install them, or name a file of them \
                 in SSL_CERT_FILE"
            ))
        })
    }

    /// Has the certificates of this text in PEM alone.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: what is wrong with the text.
    pub(super) fn parse(pem: &str) -> Result<Self, DeliveryError> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates: Vec<_> = found.iter().flatten().cloned().collect();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        let why = match () {
            () if pem.len() > MOST_BYTES => "are longer than 64 KiB",
            () if found.is_empty() => "have no certificate in PEM",
            () if usable < found.len() => "have a damaged certificate",
            () => return Ok(Self::of(roots, certificates).expect("it has certificates")),
        };
        Err(DeliveryError::Usage(format!(
            "the certificates {why}: give each with its lines from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
        )))
    }

    fn of(roots: RootCertStore, certificates: Vec<CertificateDer<'static>>) -> Result<Self, VerifierBuilderError> {
        let provider = Arc::new(ring::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { usual, certificates })
    }
}

/// Errors: `Usage` unless the file has certificates only.
fn check_named(path: &Path) -> Result<(), DeliveryError> {
    let found = load_certs_from_paths(Some(path), None);
    let (usable, unusable) = RootCertStore::empty().add_parsable_certificates(found.certs);
    let why = match found.errors.first().map(|error| &error.kind) {
        Some(ErrorKind::Io { inner, .. }) => {
            format!("can't be read: {}", inner.to_string().split(" (os").next().unwrap_or_default())
        }
        None if usable == 0 => "has no certificate in PEM".to_owned(),
        None if unusable == 0 => return Ok(()),
        _ => "has a damaged certificate".to_owned(),
    };
    Err(DeliveryError::Usage(format!(
        "{NAMING} names {}, which {why}: correct it, or unset {NAMING} for the certificates of the system",
        quoted(&path.to_string_lossy(), 500)
    )))
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let result = self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match result {
            // The usual check has checked its time before this error.
            Err(error) if is_of_an_authority(&error) && self.certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// The check has no own error value for this, so the name of the error is read. If the name changes, the certificate is
/// refused.
pub(super) fn is_of_an_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
        if format!("{other:?}").contains("CaUsedAsEndEntity"))
}
