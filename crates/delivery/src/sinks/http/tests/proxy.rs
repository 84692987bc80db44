//! Webhooks through a proxy on this machine, which opens tunnels by CONNECT. The tests of Python have TLS and the environment.

use super::inside::{ALLOWED, lookups, now, open_with, to};
use super::*;
use crate::{Deliverer, Destination};

/// The address that a tunnel leads to, or the answer instead of one. It gets the line of the request and its headers.
type Leads = dyn Fn(&str) -> Result<SocketAddr, &'static str> + Send + Sync;

pub(super) struct ConnectProxy {
    address: SocketAddr,
    pub(super) heads: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ConnectProxy {
    pub(super) fn new(leads: impl Fn(&str) -> Result<SocketAddr, &'static str> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, is_over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let leads: Arc<Leads> = Arc::new(leads);
        let thread = spawn({
            let (heads, is_over) = (heads.clone(), is_over.clone());
            move || {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let (heads, leads) = (heads.clone(), leads.clone());
                    spawn(move || tunnel(stream.unwrap(), &heads, &*leads));
                }
            }
        });
        Self { address, heads, is_over, thread: Some(thread) }
    }

    pub(super) fn here(&self) -> Proxy {
        Proxy::parse(&format!("http://{}", self.address)).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.heads.lock().iter().map(|head| head.lines().next().unwrap().to_owned()).collect()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn tunnel(mut client: TcpStream, heads: &Mutex<Vec<String>>, leads: &Leads) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let receiver = leads(&head);
    heads.lock().push(head);
    match receiver.map(|it| TcpStream::connect(it).unwrap()) {
        Err(answer) => {
            let _ = client.write_all(answer.as_bytes());
        }
        Ok(receiver) => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\nX-By: proxy\r\n\r\n").unwrap();
            for (mut from, mut to) in [(client.try_clone().unwrap(), receiver.try_clone().unwrap()), (receiver, client)]
            {
                spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    }
}

fn through(proxy: &str, url: &str) -> HttpSink {
    let sink = sink(url);
    let proxy = Proxy::parse(proxy).unwrap();
    assert!(!format!("{proxy:?}").contains("s3"), "{proxy:?}");
    sink.named(&Allowed::default(), &[], Some(&proxy));
    sink
}

#[test]
fn the_operators_webhook_goes_by_its_name_through_one_tunnel__d10() {
    let receiver = Receiver::new(ok);
    let address = receiver.address;
    let proxy = ConnectProxy::new(move |_| Ok(address));
    let mut sink = through(&format!("http://me:s3cret%40@{}", proxy.address), "http://no-such-name.test/in?token=t");
    for _ in 0..2 {
        assert!(matches!(verdict(&mut sink), Verdict::Delivered));
    }
    assert_eq!(proxy.asked(), ["CONNECT no-such-name.test:80 HTTP/1.1"], "the second message finds it open");
    assert!(proxy.heads.lock()[0].contains("Proxy-Authorization: Basic bWU6czNjcmV0QA==\r\n"), "me:s3cret@");
    let posts = receiver.posts.lock();
    assert_eq!((posts.len(), &*posts[0].head), (2, "POST /in?token=t HTTP/1.1"));
    assert_eq!(posts[0].headers["host"], "no-such-name.test");
    assert!(!posts[0].headers.contains_key("proxy-authorization"));
}

#[test]
fn a_proxy_that_opens_no_tunnel_is_named_in_the_error_and_its_password_is_not__d6_d12() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\ns3 no";
    for (answer, said) in [
        (
            Some("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"),
            "refused with 407: it needs a user and a password",
        ),
        (Some(refused), "opened no connection: it refuses the receiver, or can't reach it, and its log says which"),
        (Some("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "opened no connection"),
        (Some("SSH-2.0-OpenSSH\r\n\r\n"), "opened no connection"),
        (Some(""), "closed the connection without an answer"),
        (None, "can't be reached: tcp connect error: Connection refused"),
    ] {
        let proxy = answer.map(|answer| ConnectProxy::new(move |_| Err(answer)));
        let at = proxy.as_ref().map_or(gone, |it| it.address);
        let found = verdict(&mut through(&format!("http://me:s3cret@{at}"), "https://receiver.test/"));
        assert!(matches!(found, Verdict::Unreachable { .. }), "{found:?}");
        assert!(text(&found).starts_with(&format!("the proxy {at} {said}")), "{found:?}");
        assert!(!text(&found).contains("s3"), "{found:?}");
        assert!(proxy.is_none_or(|it| it.asked() == ["CONNECT receiver.test:443 HTTP/1.1"]));
    }
}

#[test]
fn an_error_of_the_receiver_is_the_receivers_also_through_a_proxy__d6() {
    let receiver = Receiver::new(|_, stream| reply(stream, 403, "", b"not you"));
    let address = receiver.address;
    let proxy = ConnectProxy::new(move |_| Ok(address));
    let found = verdict(&mut through(&proxy.address.to_string(), "http://receiver.test/"));
    assert!(matches!(found, Verdict::Refused(_)) && text(&found) == "status 403: not you", "{found:?}");
}

#[test]
fn a_tls_error_of_the_proxy_is_not_said_of_the_receiver__d6() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sink = through(&format!("https://{}", plain.local_addr().unwrap()), "http://receiver.test/");
    let answers = spawn(move || plain.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    let found = verdict(&mut sink);
    answers.join().unwrap();
    assert!(text(&found).contains("can't be reached: the proxy does not speak TLS at this port"), "{found:?}");
}

#[test]
fn a_named_destination_is_looked_up_and_checked_here_and_the_proxy_gets_the_address__d23() {
    let (folder, letters) = (tempfile::tempdir().unwrap(), Arc::default());
    let receiver = Receiver::at(&"0.0.0.0:0".parse().unwrap(), |_, stream| {
        reply(stream, 200, "Connection: close\r\n", b"");
        false
    });
    let port = receiver.address.port();
    let of = move |host: &str| format!("CONNECT {host}:{port} HTTP/1.1");
    let proxy = ConnectProxy::new(move |head| {
        if head.starts_with(&of(ALLOWED)) {
            Ok(SocketAddr::new(ALLOWED.parse().unwrap(), port))
        } else {
            Err("HTTP/1.1 403 Forbidden\r\n\r\n")
        }
    });
    let deliverer = open_with(&folder, &letters, Some(proxy.here()));
    for host in ["changes.test", "two.test", ALLOWED, "127.0.0.1"] {
        deliverer.set_destination(host, &to(format!("http://{host}:{port}/"))).unwrap();
    }
    deliverer.put(now("a").to("changes.test")).unwrap();
    wait_until("it has arrived", || receiver.count() == 1);
    assert_eq!(proxy.asked(), [of(ALLOWED)], "what was found, and not the name");
    assert_eq!(receiver.posts.lock()[0].headers["host"], format!("changes.test:{port}"));
    deliverer.put(now("b").to("changes.test")).unwrap();
    wait_until("it is a dead letter", || letters.lock().len() == 1);
    assert!(letters.lock().remove(0).contains("127.0.0.1 is an address inside"));

    deliverer.put(now("c").to("two.test")).unwrap();
    wait_until("it has arrived", || receiver.count() == 2);
    assert_eq!(proxy.asked()[1..], [of("127.0.0.3"), of(ALLOWED)], "the proxy refused the first");

    let tried = deliverer.test_destination(ALLOWED).unwrap().unwrap().0;
    assert!(matches!(tried, Verdict::Delivered), "{tried:?}");
    let tried = deliverer.test_destination("127.0.0.1").unwrap().unwrap().0;
    assert!(text(&tried).starts_with("127.0.0.1 is an address inside"), "{tried:?}");
    deliverer.close(None).unwrap();
    assert_eq!((proxy.asked().len(), receiver.count()), (4, 3));
    assert!(letters.lock().is_empty());
}

#[test]
fn a_proxy_that_says_nothing_is_named_once_the_connection_took_too_long__d6() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let given = Given::default();
    let proxy = Some(Proxy::parse(&format!("me:s3cret@{at}")).unwrap());
    given.set(Known { allowed: Allowed::default(), final_statuses: Vec::new(), proxy }).unwrap();
    let mut connect = Connect::new(false, &lookups(), &given).unwrap().0;
    connect.within = Duration::from_millis(20);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let request =
        Request::post("http://receiver.test/").body(Full::new(content(Vec::new(), Bytes::new(), Vec::new()))).unwrap();
    let error = runtime.block_on(client(connect).request(request)).unwrap_err();
    let found = answers::verdict_without(&error);
    assert_eq!(text(&found), format!("no connection within 0 s through the proxy {at}"));
}

#[test]
fn an_address_that_is_no_proxys_is_refused_and_not_shown__d12() {
    for good in
        ["proxy:3128", "proxy", "http://proxy", "https://me:s3%2Fcret@proxy:3128/", "http://[::1]:3128", "HTTP://a@b"]
    {
        assert!(Proxy::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "socks5://s3:1080",
        "http://",
        "http://:3128",
        "http://me:s3@",
        "http://me:s3/cret@proxy:3128",
        "http://me:80/s3cret@proxy",
        "http://me:80#s3cret@proxy",
        "http://me:80?s3cret@proxy",
        "http://me:80\\s3cret@proxy",
        "http://me:s3@cret@proxy:3128",
        "http://s3:port",
        "http://s3:0",
        "http://s3:99999",
        "http://s3 cret@proxy",
    ] {
        let Err(DeliveryError::Usage(error)) = Proxy::parse(bad) else { panic!("{bad}") };
        assert!(error.starts_with("proxy is no address of a proxy by HTTP: write") && !error.contains("s3"), "{error}");
    }
}

#[test]
fn a_proxy_is_for_webhooks__d10() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { proxy: Some(Proxy::parse("proxy").unwrap()), ..Settings::default() };
    let to = Destination::function(|_| Verdict::Delivered);
    let error = Deliverer::open_with(folder.path().join("s.db"), to, settings).expect_err("it sends to none");
    assert_eq!(error.to_string(), "proxy is for webhooks, and this sends to none: leave it out");
}
