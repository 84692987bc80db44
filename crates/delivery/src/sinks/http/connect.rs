//! Opens the connections of the webhooks, a bounded number at a time for each host and port. So a receiver that opens none
//! holds up no other; all together there are at most as many as requests in flight.
//!
//! When thousands of messages are due at once, ended requests free their connections for waiting requests. So only as
//! many connections are opened as the receiver's speed needs, and its queue of new connections does not overflow.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Authority;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustc_hash::FxHashMap;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower_service::Service;

use super::certificates::Trusted;
use super::lookups::{Given, Lookups};
use super::tunnels::Reach;
use crate::base::error::DeliveryError;
use crate::base::sync::Mutex;
use crate::sinks::inside::Allowed;

/// How many connections to one host and port may be in the process of opening at a time.
const OPENING: usize = 64;
/// How long a connection may take to open, with the look-up of its name and TLS. The end of a request does not end the
/// opening: the client goes on with it for later requests.
const OPENS_WITHIN: Duration = Duration::from_secs(10);

type Stream = MaybeHttpsStream<MaybeHttpsStream<TokioIo<TcpStream>>>;
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Connects, with TLS for `https`.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    inner: HttpsConnector<Reach>,
    reach: Reach,
    opening: Arc<Mutex<FxHashMap<Authority, Weak<Semaphore>>>>,
    pub(super) within: Duration,
}

impl Connect {
    /// Also returns the one for named destinations, whose addresses are looked at before they are used (D23).
    pub(super) fn new(is_https: bool, lookups: &Lookups, given: &Given) -> Result<(Self, Self), DeliveryError> {
        let tls = tls(if is_https { Some(Trusted::read()?) } else { None });
        let by = |lookups: &Lookups| {
            let mut tcp = HttpConnector::new_with_resolver(lookups.clone());
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            tcp
        };
        let of = |guarded: Option<Lookups>| {
            let to_proxy = HttpsConnector::from((by(lookups), tls.clone()));
            let reach = Reach { tcp: by(guarded.as_ref().unwrap_or(lookups)), to_proxy, guarded, given: given.clone() };
            let inner = HttpsConnector::from((reach.clone(), tls.clone()));
            Self { inner, reach, opening: Arc::default(), within: OPENS_WITHIN }
        };
        Ok((of(None), of(Some(lookups.guarded(given.clone())))))
    }

    /// The same, but receivers are checked with these certificates.
    pub(super) fn trusting(&self, trusted: Trusted) -> Self {
        Self { inner: HttpsConnector::from((self.reach.clone(), tls(Some(trusted)))), ..self.clone() }
    }

    /// The permits of this host and port.
    fn opening(&self, uri: &Uri) -> Arc<Semaphore> {
        let Some(authority) = uri.authority() else { return Arc::new(Semaphore::new(OPENING)) };
        let mut all = self.opening.lock();
        if let Some(opening) = all.get(authority).and_then(Weak::upgrade) {
            return opening;
        }
        all.retain(|_, opening| opening.strong_count() > 0);
        let opening = Arc::new(Semaphore::new(OPENING));
        all.insert(authority.clone(), Arc::downgrade(&opening));
        opening
    }

    /// # Errors
    /// The address has a literal host that is inside. Names are looked at when they are looked up.
    fn check(&self, uri: &Uri) -> std::io::Result<()> {
        let (Some(_), given) = (&self.reach.guarded, self.reach.given.get()) else { return Ok(()) };
        given.map_or_else(Allowed::default, |it| it.allowed.clone()).check_host(uri.host().unwrap_or(""))
    }
}

/// `None`: no receiver is trusted.
fn tls(trusted: Option<Trusted>) -> ClientConfig {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions");
    match trusted {
        Some(trusted) => tls.dangerous().with_custom_certificate_verifier(Arc::new(trusted)).with_no_client_auth(),
        None => tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
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
        let (mut inner, opening, within) = (self.inner.clone(), self.opening(&uri), self.within);
        let (is_allowed, through) = (self.check(&uri), self.reach.through(&uri));
        Box::pin(async move {
            is_allowed?;
            let _permit = opening.acquire().await?;
            match timeout(within, inner.call(uri)).await {
                Ok(opened) => opened,
                Err(_) => Err(format!("no connection within {} s{through}", within.as_secs()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connect(within: Duration) -> Connect {
        Connect { within, ..Connect::new(false, &Lookups::start().unwrap(), &Given::default()).unwrap().0 }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    /// The listener accepts connections, and never answers a handshake.
    fn silent() -> (TcpListener, Uri) {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("https://{}/", silent.local_addr().unwrap()).parse().unwrap();
        (silent, uri)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_connection_that_does_not_open_gives_its_place_back__d6() {
        let (_silent, uri) = silent();
        let mut connect = connect(Duration::from_millis(20));
        let opening = connect.opening(&uri);
        run(async {
            let several: Vec<_> = (0..2 * OPENING).map(|_| tokio::spawn(connect.call(uri.clone()))).collect();
            for opened in several {
                let error = timeout(LONG, opened).await.expect("it ends").unwrap().unwrap_err();
                assert_eq!(error.to_string(), "no connection within 0 s");
            }
        });
        assert_eq!(opening.available_permits(), OPENING);
        drop(opening);
        connect.opening(&"http://another".parse().unwrap());
        assert_eq!(connect.opening.lock().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn receivers_that_open_no_connection_hold_up_no_other__d23() {
        let well = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri: Uri = format!("http://{}/", well.local_addr().unwrap()).parse().unwrap();
        let mut connect = connect(10 * LONG);
        let silent = [silent(), silent()];
        run(async {
            for (_, uri) in &silent {
                for _ in 0..OPENING {
                    tokio::spawn(connect.call(uri.clone()));
                }
            }
            let full = || silent.iter().all(|(_, uri)| connect.opening(uri).available_permits() == 0);
            while !full() {
                tokio::task::yield_now().await;
            }
            timeout(LONG, connect.clone().call(uri)).await.expect("it is opened at once").unwrap();
            assert!(full());
        });
    }
}
