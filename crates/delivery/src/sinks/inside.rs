//! The addresses that a named destination must not reach (rule D23): this machine, and the networks around it. A cloud's
//! metadata is one of them. The operator may allow networks, and `--to` may be any address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::base::display::quoted;
use crate::base::error::DeliveryError;

/// The networks inside that the operator allows.
///
/// ```
/// use tickwheel_delivery::Allowed;
/// let allowed = Allowed::parse(&["10.0.0.0/8".to_owned(), "127.0.0.1".to_owned()])?;
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Allowed(Arc<[IpNet]>);

impl Allowed {
    /// Reads networks such as `10.0.0.0/8`, and single addresses.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the first text that is none.
    pub fn parse(texts: &[String]) -> Result<Self, DeliveryError> {
        let network = |text: &String| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or(address).map_err(|_| {
                let text = quoted(text, 60);
                DeliveryError::Usage(format!("{text} is no network: write it as 10.0.0.0/8, fd00::/8 or 127.0.0.1"))
            })
        };
        Ok(Self(texts.iter().map(network).collect::<Result<_, _>>()?))
    }

    /// # Errors
    /// The address is inside, and not allowed.
    pub(crate) fn check(&self, address: IpAddr) -> io::Result<()> {
        if !is_inside(address) || self.0.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        let text = format!("{address} is an address inside, which no destination may have without --allow-address");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    /// # Errors
    /// The host is such an address. A name is looked at when it is looked up.
    pub(crate) fn check_host(&self, host: &str) -> io::Result<()> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.parse().map_or(Ok(()), |address| self.check(address))
    }

    /// Those that may be reached.
    ///
    /// # Errors
    /// None may.
    pub(crate) fn filter(&self, found: impl Iterator<Item = SocketAddr>) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let mut refused = Ok(());
        let mut left = Vec::new();
        for address in found {
            match self.check(address.ip()) {
                Ok(()) => left.push(address),
                error => refused = error,
            }
        }
        if left.is_empty() { refused.map(|()| Vec::new().into_iter()) } else { Ok(left.into_iter()) }
    }
}

/// Whether the address is of this machine, of a network that is not the public one, or stands for such an address.
fn is_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_inside_4(address),
        IpAddr::V6(address) => is_inside_6(address),
    }
}

fn is_inside_4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local() // a cloud's metadata too
        || address.is_documentation()
        || a == 0
        || a >= 224 // multicast, reserved, broadcast
        || (a == 100 && b & 0xC0 == 64) // shared
        || (a == 198 && b & 0xFE == 18) // benchmarks
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99) // a relay of 6to4
}

fn is_inside_6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let at = |place: usize| {
        let [a, b] = [parts[place].to_be_bytes(), parts[place + 1].to_be_bytes()];
        is_inside_4(Ipv4Addr::new(a[0], a[1], b[0], b[1]))
    };
    match parts {
        [0, 0, 0, 0, 0, 0 | 0xFFFF, ..] | [0, 0, 0, 0, 0xFFFF, 0, ..] | [0x64, 0xFF9B, 0, 0, 0, 0, ..] => at(6),
        [0x2002, ..] => at(1), // 6to4
        // A local translation; Teredo, which hides its address; documentation; to be discarded; within a network alone.
        [0x64, 0xFF9B, ..]
        | [0x2001, 0 | 0xDB8, ..]
        | [0x100, 0, 0, 0, ..]
        | [0x5F00, ..]
        | [0x3FFF, 0..=0xFFF, ..] => true,
        [first, ..] => first & 0xE000 != 0x2000, // only 2000::/3 is public
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(text: &str) -> bool {
        is_inside(text.parse().unwrap())
    }

    #[test]
    fn what_is_not_public_is_inside_in_whatever_form_it_comes__d23() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
            "3fff::1",
            "4000::1",
            "::2",
        ] {
            assert!(inside(text), "{text}");
        }
    }

    #[test]
    fn what_is_public_is_not__d23() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.1.1",
            "172.15.1.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.1.1",
            "198.20.0.1",
            "223.255.255.254",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860::8888",
        ] {
            assert!(!inside(text), "{text}");
        }
    }

    #[test]
    fn the_operator_opens_networks_and_others_stay_closed__d23() {
        let allowed = Allowed::parse(&["10.1.0.0/16".to_owned(), "::1".to_owned()]).unwrap();
        for (text, is_allowed) in [("10.1.2.3", true), ("10.2.0.1", false), ("::1", true), ("127.0.0.1", false)] {
            assert_eq!(allowed.check(text.parse().unwrap()).is_ok(), is_allowed, "{text}");
        }
        let both = ["10.1.2.3:80", "10.2.2.3:80"].map(|text| text.parse().unwrap());
        assert_eq!(allowed.filter(both.into_iter()).unwrap().collect::<Vec<_>>(), both[..1]);
        let error = allowed.filter(both[1..].iter().copied()).unwrap_err().to_string();
        assert!(error.starts_with("10.2.2.3 is an address inside"), "{error}");
        assert!(Allowed::parse(&["10.0.0/8".to_owned()]).unwrap_err().to_string().contains("is no network"));
    }
}
