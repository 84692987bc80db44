//! Connections through the proxy of the operator (rules D6, D10, D12, D23): each one of a webhook is a tunnel, by CONNECT.
//!
//! - For the operator's own webhook the proxy looks up the name. The name of a named destination is looked up and checked here, and
//!   CONNECT has the address that was found: the proxy does not look up a name that may lead inside.
//! - The address of the proxy is not checked, as it is the operator's. Its password is in no error.
//! - A proxy that opens no tunnel makes the destination unreachable, and the error says that it was the proxy.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::answers::reason_of;
use super::lookups::{Given, Lookups};
use super::proxy::ProxyError;

/// Opens connections without TLS to receivers: to them, or through the proxy.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) tcp: HttpConnector<Lookups>,
    pub(super) to_proxy: HttpsConnector<HttpConnector<Lookups>>,
    /// For named destinations: looks up a name, and checks what it finds.
    pub(super) guarded: Option<Lookups>,
    pub(super) given: Given,
}

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Error = Box<dyn std::error::Error + Send + Sync>;
type TunnelError = <Tunnel<HttpsConnector<HttpConnector<Lookups>>> as Service<Uri>>::Error;

impl Reach {
    fn proxy(&self, uri: &Uri) -> Option<Intercept> {
        self.given.get()?.proxy.as_ref()?.of(uri)
    }

    /// The proxy for this receiver, without a user, for an error.
    pub(super) fn through(&self, uri: &Uri) -> String {
        self.proxy(uri).map_or(String::new(), |proxy| format!(" through the proxy {}", shown(&proxy)))
    }
}

fn shown(proxy: &Intercept) -> &str {
    proxy.uri().authority().map_or("", |it| it.as_str())
}

impl Service<Uri> for Reach {
    type Response = Stream;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Some(proxy) = self.proxy(&uri) else {
            let tcp = self.tcp.call(uri);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(tcp.await?)) });
        };
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy.clone());
        if let Some(user) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(user.clone());
        }
        let guarded = self.guarded.clone();
        Box::pin(async move {
            let mut failed: Error = "the name has no address".into();
            for receiver in receivers(&uri, guarded).await? {
                match tunnel.call(receiver).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failed = ProxyError(sentence(&error, shown(&proxy))).into(),
                }
            }
            Err(failed)
        })
    }
}

/// What the proxy is asked for: the name of a receiver, or all addresses that its name has and may have.
async fn receivers(uri: &Uri, guarded: Option<Lookups>) -> Result<Vec<Uri>, Error> {
    let host = uri.host().unwrap_or("");
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let authorities = match guarded {
        // A literal address was checked before.
        Some(mut lookups) if bare.parse::<IpAddr>().is_err() => {
            lookups.call(bare.parse()?).await?.map(|it| SocketAddr::new(it.ip(), port).to_string()).collect()
        }
        _ => vec![format!("{host}:{port}")],
    };
    authorities.into_iter().map(|it| it.parse().map_err(Into::into)).collect()
}

fn sentence(error: &TunnelError, proxy: &str) -> String {
    match error {
        TunnelError::ProxyAuthRequired => {
            format!("the proxy {proxy} refused with 407: it needs a user and a password, or other ones than it got")
        }
        TunnelError::ConnectFailed(_) | TunnelError::Io(_) => {
            format!("the proxy {proxy} can't be reached: {}", reason_of(error).replace("the receiver", "the proxy"))
        }
        TunnelError::TunnelUnexpectedEof => format!("the proxy {proxy} closed the connection without an answer"),
        _ => format!(
            "the proxy {proxy} opened no connection: it refuses the receiver, or can't reach it, and its log says which"
        ),
    }
}
