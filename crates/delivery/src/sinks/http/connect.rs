//! Opens the connections of the webhooks, a bounded number at a time.
//!
//! When thousands of messages are due at once, ended requests free their connections for waiting requests. So only as
//! many connections are opened as the receiver's speed needs, and its queue of new connections does not overflow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower_service::Service;

use super::certificates::Trusted;
use super::lookups::{Guard, Lookups};
use crate::base::error::DeliveryError;

/// How many connections may be in the process of opening at a time.
const OPENING: usize = 64;
/// How long a connection may take to open, with the look-up of its name and TLS. The end of a request does not end the
/// opening: the client goes on with it for later requests.
const OPENS_WITHIN: Duration = Duration::from_secs(10);

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Connects, with TLS for `https`.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    inner: HttpsConnector<HttpConnector<Lookups>>,
    opening: Arc<Semaphore>,
    within: Duration,
    /// For named destinations.
    guard: Option<Guard>,
}

impl Connect {
    /// Also returns the one for named destinations, whose addresses are looked at before they are used (D23).
    pub(super) fn new(is_https: bool, guard: Guard) -> Result<(Self, Self), DeliveryError> {
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
        let of = |lookups, guard| {
            let mut tcp = HttpConnector::new_with_resolver(lookups);
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            let inner = HttpsConnector::from((tcp, tls.clone()));
            Self { inner, opening: Arc::new(Semaphore::new(OPENING)), within: OPENS_WITHIN, guard }
        };
        Ok((of(lookups.clone(), None), of(lookups.guarded(guard.clone()), Some(guard))))
    }

    /// # Errors
    /// The address has a literal host that is inside. Names are looked at when they are looked up.
    fn check(&self, uri: &Uri) -> std::io::Result<()> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let host = uri.host().unwrap_or("").trim_start_matches('[').trim_end_matches(']');
        match host.parse() {
            Ok(address) => guard.get().cloned().unwrap_or_default().check(address),
            Err(_) => Ok(()),
        }
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
        let (mut inner, opening, within) = (self.inner.clone(), self.opening.clone(), self.within);
        let is_allowed = self.check(&uri);
        Box::pin(async move {
            is_allowed?;
            let _permit = opening.acquire().await?;
            match timeout(within, inner.call(uri)).await {
                Ok(opened) => opened,
                Err(_) => Err(format!("no connection within {} s", within.as_secs()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The listener accepts connections, and never answers a handshake.
    #[test]
    fn a_connection_that_does_not_open_gives_its_place_back__d6() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri: Uri = format!("https://{}/", silent.local_addr().unwrap()).parse().unwrap();
        let mut connect =
            Connect { within: Duration::from_millis(20), ..Connect::new(false, Guard::default()).unwrap().0 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let several: Vec<_> = (0..2 * OPENING).map(|_| tokio::spawn(connect.call(uri.clone()))).collect();
            for opened in several {
                let error = timeout(Duration::from_secs(60), opened).await.expect("it ends").unwrap().unwrap_err();
                assert_eq!(error.to_string(), "no connection within 0 s");
            }
        });
        assert_eq!(connect.opening.available_permits(), OPENING);
    }
}
