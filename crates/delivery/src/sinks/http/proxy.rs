//! The proxy of the operator (rules D10, D12), as an option or the environment names it. [`tunnels`](super::tunnels) goes through it.

use std::env;
use std::fmt;
use std::sync::Arc;

use hyper::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use crate::base::error::DeliveryError;

/// The proxy of webhooks.
///
/// ```
/// use tickwheel_delivery::{Proxy, Settings};
/// let proxy = Proxy::parse("http://user:password@proxy.example.org:3128")?;
/// let settings = Settings { proxy: Some(proxy), ..Settings::default() };
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Matcher>);

impl Proxy {
    /// Reads `http://HOST:PORT` or `https://HOST:PORT`, with `USER:PASSWORD@` before the host if the proxy needs it, or `env`: what
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, also in lower case.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the text, or a variable, is no such address. The error does not show it.
    pub fn parse(text: &str) -> Result<Self, DeliveryError> {
        if text != "env" {
            check("proxy", text)?;
            return Ok(Self(Arc::new(Matcher::builder().all(text).build())));
        }
        for (name, value) in set_variables() {
            check(name, &value)?;
        }
        Ok(Self(Arc::new(Matcher::from_env())))
    }

    /// The proxy for this receiver, if there is one.
    pub(super) fn of(&self, uri: &Uri) -> Option<Intercept> {
        self.0.intercept(uri)
    }

    /// The variable that is set for a proxy, if there is one.
    pub(crate) fn variable() -> Option<&'static str> {
        set_variables().next().map(|(name, _)| name)
    }
}

/// The variables that count, with their values: of each kind, the first that is set.
fn set_variables() -> impl Iterator<Item = (&'static str, String)> {
    let kinds = [["HTTPS_PROXY", "https_proxy"], ["HTTP_PROXY", "http_proxy"], ["ALL_PROXY", "all_proxy"]];
    let of_kind = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| Some((name, env::var_os(name)?.to_string_lossy().into_owned())))
    };
    kinds.into_iter().filter_map(of_kind).filter(|(_, value)| !value.is_empty())
}

/// Errors: `Usage` if the library would ignore this address, or read it in another way than it is meant.
fn check(name: &str, text: &str) -> Result<(), DeliveryError> {
    let is_address = |uri: Uri| {
        let (host, authority) = (uri.host().filter(|it| !it.is_empty())?, uri.authority()?.as_str());
        let is_host = authority.ends_with(host) || uri.port_u16().is_some_and(|port| port > 0);
        let is_alone = matches!(uri.path(), "" | "/") && uri.query().is_none();
        Some(matches!(uri.scheme_str(), None | Some("http" | "https")) && is_host && is_alone)
    };
    if !text.contains(['#', '\\'])
        && text.matches('@').count() < 2
        && text.parse().ok().and_then(is_address) == Some(true)
    {
        return Ok(());
    }
    Err(DeliveryError::Usage(format!(
        "{name} is no address of a proxy by HTTP: write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with other characters \
         than letters and digits in USER and PASSWORD as %40 and so on"
    )))
}

/// Why the proxy has opened no connection. It is shown as it is.
#[derive(Debug)]
pub(super) struct ProxyError(pub(super) String);

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProxyError {}
