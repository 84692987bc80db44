//! Opens the connections of the webhooks, a bounded number at a time.
//!
//! When thousands of messages are due at once, ended requests free their connections for waiting requests. So only as
//! many connections are opened as the receiver's speed needs, and its queue of new connections does not overflow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower_service::Service;

use super::certificates::Trusted;
use super::lookups::Lookups;
use crate::base::error::DeliveryError;

/// How many connections may be in the process of opening at a time.
const OPENING: usize = 64;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Connects, with TLS for `https`.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    inner: HttpsConnector<HttpConnector<Lookups>>,
    opening: Arc<Semaphore>,
}

impl Connect {
    pub(super) fn new(is_https: bool) -> Result<Self, DeliveryError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions");
        let tls = if is_https {
            tls.dangerous().with_custom_certificate_verifier(Arc::new(Trusted::read(provider)?)).with_no_client_auth()
        } else {
            tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        };
        let lookups = Lookups::start().map_err(|error| DeliveryError::no_thread(&error))?;
        let mut tcp = HttpConnector::new_with_resolver(lookups);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Ok(Self { inner: HttpsConnector::from((tcp, tls)), opening: Arc::new(Semaphore::new(OPENING)) })
    }
}

impl Service<Uri> for Connect {
    type Response = Stream;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (mut inner, opening) = (self.inner.clone(), self.opening.clone());
        Box::pin(async move {
            let _permit = opening.acquire().await?;
            inner.call(uri).await
        })
    }
}
