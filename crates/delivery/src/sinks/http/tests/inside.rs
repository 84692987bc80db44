//! Attempts to reach an address inside by a named destination (D23). One address is allowed, and a receiver listens on all.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs as _;

use super::named::Letters;
use super::proxy::ConnectProxy;
use super::*;
use crate::{Allowed, Deliverer, Destination, NamedBody, NamedSettings};

pub(super) const ALLOWED: &str = "127.0.0.2";

/// Answers the names of the test. `changes.test` is allowed at first, and inside when it is asked again.
pub(super) fn lookups() -> Lookups {
    let asked = AtomicUsize::new(0);
    Lookups::with(move |name| {
        let texts: &[&str] = match name {
            "metadata.test" | "metadata.test." => &["169.254.169.254"],
            "six.test" => &["::1"],
            "mapped.test" => &["::ffff:10.0.0.1"],
            "translated.test" => &["64:ff9b::a00:1"],
            "two.test" => &["10.0.0.1", "127.0.0.3", ALLOWED],
            "several.test" => &["10.0.0.1", "127.0.0.1", "fd00::1"],
            "changes.test" if asked.fetch_add(1, Ordering::SeqCst) == 0 => &[ALLOWED],
            "changes.test" | "inside.test" | "127.0.0.1.inside.test" | "localhost" | "LOCALHOST" | "127.0.0.1." => {
                &["127.0.0.1"]
            }
            number => return (number, 0).to_socket_addrs().map(Iterator::collect), // the system reads it as an address
        };
        Ok(texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect())
    })
    .unwrap()
}

fn open(folder: &tempfile::TempDir, letters: &Arc<Mutex<Vec<String>>>) -> Deliverer {
    open_with(folder, letters, None)
}

pub(super) fn open_with(
    folder: &tempfile::TempDir,
    letters: &Arc<Mutex<Vec<String>>>,
    proxy: Option<Proxy>,
) -> Deliverer {
    let lookups = lookups();
    let retry = Retry { waits_ms: vec![1], waits_end: true, ..Retry::default() };
    let to = Destination::reply_sink(move |_| HttpSink::with(None, &lookups));
    let allowed = Allowed::parse(&[ALLOWED.to_owned(), "127.0.0.3".to_owned()]).unwrap();
    let settings =
        Settings { retry, allowed, proxy, observer: Arc::new(Letters(letters.clone())), ..Settings::default() };
    Deliverer::open_with(folder.path().join("s.db"), to, settings).unwrap()
}

pub(super) fn to(url: String) -> NamedSettings {
    NamedSettings { url, ..NamedSettings::default() }
}

pub(super) fn now(id: &str) -> Message {
    Message::after(id, Duration::ZERO, "1")
}

#[test]
fn no_form_of_an_address_inside_and_no_name_of_one_is_reached__d23() {
    reaches_nothing_inside(None);
}

#[test]
fn nor_is_it_through_a_proxy__d23() {
    let proxy = ConnectProxy::new(|_| Err(""));
    reaches_nothing_inside(Some(proxy.here()));
    assert!(proxy.heads.lock().is_empty(), "{:?}", proxy.heads.lock());
}

fn reaches_nothing_inside(proxy: Option<Proxy>) {
    let (folder, letters) = (tempfile::tempdir().unwrap(), Arc::default());
    let receiver = Receiver::at(&"0.0.0.0:0".parse().unwrap(), ok);
    let deliverer = open_with(&folder, &letters, proxy);
    let hosts = "127.0.0.1 127.0.0.4 127.1 127.0.1 2130706433 0x7f000001 0X7F.0.0.1 0177.0.0.1 017700000001 0.0.0.0 0 \
        10.0.0.1 100.64.0.1 169.254.169.254 172.16.0.1 192.168.0.1 198.18.0.1 224.0.0.1 255.255.255.255 [::] [::1] \
        [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] \
        [64:ff9b:1::7f00:1] [2002:7f00:1::] [2001::1] [fe80::1] [fe80::1%lo] [::1%1] [fd00:ec2::254] [ff02::1] localhost LOCALHOST \
        127.0.0.1. inside.test 127.0.0.1.inside.test metadata.test metadata.test. six.test mapped.test \
        translated.test several.test";
    let hosts: Vec<&str> = hosts.split_whitespace().collect();
    assert!(hosts.len() > 40);
    for (number, host) in hosts.iter().enumerate() {
        let name = format!("d{number}");
        deliverer.set_destination(&name, &to(format!("http://{host}:{}/", receiver.address.port()))).unwrap();
        deliverer.put(now(host).to(&name)).unwrap();
    }
    wait_until("all are dead letters", || letters.lock().len() == hosts.len());
    deliverer.close(None).unwrap();
    for reason in letters.lock().iter() {
        assert!(reason.contains("inside, which no destination may have"), "{reason}");
    }
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn no_redirect_no_change_of_a_name_and_no_part_of_a_message_leads_inside__d23() {
    let (folder, letters) = (tempfile::tempdir().unwrap(), Arc::default());
    let receiver = Receiver::at(&"0.0.0.0:0".parse().unwrap(), |post, stream| {
        let port = post.headers["host"].rsplit(':').next().unwrap();
        let status = post.headers["x-status"].parse().unwrap();
        reply(stream, status, &format!("Location: http://127.0.0.1:{port}/inside\r\nConnection: close\r\n"), b"");
        false
    });
    let port = receiver.address.port();
    let deliverer = open(&folder, &letters);
    let answers = |status: &str| BTreeMap::from([("x-status".to_owned(), status.to_owned())]);
    for status in ["301", "302", "303", "307", "308"] {
        let settings = NamedSettings { headers: answers(status), ..to(format!("http://{ALLOWED}:{port}/")) };
        deliverer.set_destination(status, &settings).unwrap();
        deliverer.put(now(status).to(status)).unwrap();
    }
    wait_until("all are dead letters", || letters.lock().len() == 5);
    assert!(letters.lock().drain(..).all(|reason| reason.contains("a redirect, which is not followed")));
    assert_eq!(receiver.count(), 10, "two attempts of each");

    let settings = NamedSettings { headers: answers("200"), ..to(format!("http://changes.test:{port}/")) };
    deliverer.set_destination("changes", &settings).unwrap();
    deliverer.put(now("first").to("changes")).unwrap();
    wait_until("it has arrived", || receiver.count() == 11);
    deliverer.put(now("second").to("changes")).unwrap();
    wait_until("it is a dead letter", || letters.lock().len() == 1);
    assert!(letters.lock().remove(0).contains("127.0.0.1 is an address inside"));

    let url = format!("http://{ALLOWED}:{port}/");
    let body = NamedBody::Template(r#"["{{id}}"]"#.to_owned());
    deliverer.set_destination("made", &NamedSettings { headers: answers("200"), body, ..to(url) }).unwrap();
    let ids =
        ["//127.0.0.1/", "@127.0.0.1", "\r\nHost: 127.0.0.1\r\n\r\n", "#@127.0.0.1", "\\127.0.0.1", "{{payload}}"];
    for id in ids {
        deliverer.put(now(id).to("made")).unwrap();
    }
    wait_until("all have arrived", || receiver.count() == 11 + ids.len());
    deliverer.close(None).unwrap();
    let posts = receiver.posts.lock();
    assert!(posts[..11].iter().all(|post| !post.head.contains("inside")));
    for post in &posts[11..] {
        assert_eq!(post.headers["host"], format!("{ALLOWED}:{port}"));
        let [id]: [String; 1] = serde_json::from_str(&post.body).unwrap();
        assert!(ids.contains(&&*id), "{id:?}");
    }
    assert!(letters.lock().is_empty());
}

#[test]
fn what_would_lead_elsewhere_is_refused_when_it_is_set__d23() {
    let (folder, letters) = (tempfile::tempdir().unwrap(), Arc::default());
    let (deliverer, mut wrong) = (open(&folder, &letters), Vec::new());
    for (url, expected) in [
        ("http://example.org@127.0.0.1/", "contains a user"),
        ("http://example.org:80@127.0.0.1/", "contains a user"),
        ("http://127.0.0.1#@example.org/", "a # or a control character"),
        ("http://127.0.0.1/#example.org", "a # or a control character"),
        ("http://{id}/", "has a brace"),
        ("http://example.org:{id}/", "has a brace"),
        ("http://example.org/{payload}", "has a brace"),
        ("http://example.org\\@127.0.0.1/", "contains a user"),
        ("http://example.org\\127.0.0.1/", "is no address"),
        ("http://example.org\t.127.0.0.1/", "control character"),
        ("http://example.org\r\nHost: 127.0.0.1", "control character"),
        ("http://127.0.0.1\u{3002}/", "is no address"),
        ("http://\u{ff11}27.0.0.1/", "is no address"),
        ("http://[::ffff:127.0.0.1/", "is no address"),
        ("http://%31%32%37.0.0.1/", "is no address"),
        ("http:127.0.0.1/", "is no address"),
        ("//127.0.0.1/", "names no host"),
        ("file:///etc/passwd", "is no address"),
        ("unix:///run/socket", "is no address"),
        ("env:URL", "is no address"),
    ] {
        let set = deliverer.set_destination("x", &to(url.to_owned()));
        let error = set.map_or_else(|error| error.to_string(), |_| "it was set".to_owned());
        if !error.contains(expected) {
            wrong.push(format!("{url}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, value) in [
        ("Host", "127.0.0.1"),
        (":authority", "127.0.0.1"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "0"),
        ("Proxy-Connection", "keep-alive"),
        ("x", "1\r\nHost: 127.0.0.1"),
        ("x\r\nHost", "127.0.0.1"),
    ] {
        let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let settings = NamedSettings { headers, ..to("http://example.org/".to_owned()) };
        let error = deliverer.set_destination("x", &settings).unwrap_err().to_string();
        assert!(error.starts_with("the header "), "{name}: {error}");
    }
    for address in ["http://127.0.0.1/", "127.0.0.1:80", "x?url=http://127.0.0.1/", "x\n"] {
        assert!(deliverer.put(now("a").to(address)).is_err(), "a message gives no address: {address}");
    }
    assert!(deliverer.destinations().unwrap().is_empty());
    deliverer.close(None).unwrap();
}
