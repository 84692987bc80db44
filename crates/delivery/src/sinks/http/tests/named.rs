//! Named destinations, with a receiver for each (D23).

use std::collections::BTreeMap;

use super::*;
use crate::{Allowed, Answer, Deliverer, Destination, Event, Letter, NamedBody, NamedSettings, Observer, Part};

fn at(receiver: &Receiver) -> NamedSettings {
    NamedSettings { url: receiver.url(), ..NamedSettings::default() }
}

/// The receivers are on this machine.
fn here() -> Settings {
    Settings { allowed: Allowed::parse(&["127.0.0.1".to_owned()]).unwrap(), ..Settings::default() }
}

fn accepting() -> Receiver {
    Receiver::new(ok)
}

fn now(id: &str) -> Message {
    Message::after(id, Duration::ZERO, "1")
}

#[test]
fn each_message_goes_where_it_says_with_what_is_set_for_there__d23() {
    let (folder, left, right) = (tempfile::tempdir().unwrap(), accepting(), accepting());
    let deliverer = Deliverer::open_with(folder.path().join("s.db"), Destination::named(), here()).unwrap();
    let headers = BTreeMap::from([("x-team".to_owned(), "17".to_owned())]);
    assert_eq!(deliverer.set_destination("left", &NamedSettings { headers, ..at(&left) }).unwrap(), Answer::Accepted);
    let secrets = Some(vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()]);
    deliverer.set_destination("right", &NamedSettings { secrets, ..at(&right) }).unwrap();
    assert!(deliverer.destinations().unwrap()["right"].secrets.is_none(), "secrets are only written");
    assert_eq!(deliverer.put(now("a").to("left")).unwrap(), Answer::Accepted);
    assert_eq!(deliverer.put(now("a").to("left")).unwrap(), Answer::Duplicate);
    assert_eq!(deliverer.put(now("a").to("right")).unwrap(), Answer::Conflict, "where it goes is content");
    assert_eq!(deliverer.put(now("b").with_key("k").to("right")).unwrap(), Answer::Accepted);
    for refused in [now("c"), now("c").to("nowhere")] {
        assert_eq!(deliverer.put(refused).unwrap(), Answer::Refused);
    }
    wait_until("all have arrived", || (left.count(), right.count()) == (1, 1));
    deliverer.close(None).unwrap();
    assert_eq!((left.ids(), right.ids()), (vec!["a".to_owned()], vec!["b".to_owned()]));
    let (left, right) = (left.posts.lock(), right.posts.lock());
    assert_eq!(left[0].headers.get("x-team").map(String::as_str), Some("17"));
    assert!(!left[0].headers.contains_key("webhook-signature") && right[0].headers.contains_key("webhook-signature"));
    assert!(left[0].body.contains(r#""destination":"left""#), "{}", left[0].body);
}

#[test]
fn what_waits_and_what_is_set_is_there_after_a_restart_and_a_change_is_true_for_the_next_send__d23() {
    let (folder, before, after) = (tempfile::tempdir().unwrap(), accepting(), accepting());
    let store = folder.path().join("s.db");
    let deliverer = Deliverer::open_with(&store, Destination::named(), here()).unwrap();
    deliverer.set_destination("here", &NamedSettings { paused: Some(true), ..at(&before) }).unwrap();
    for number in 0..20 {
        deliverer.put(now(&format!("{number:02}")).with_key("k").to("here")).unwrap();
    }
    deliverer.close(None).unwrap();
    assert!(Deliverer::open(&store, Destination::standard_output()).is_err(), "it would go to the wrong place");
    let to = Destination::webhook(Webhook::to(&before.url()).unwrap());
    let deliverer = Deliverer::open_with(&store, to, here()).unwrap();
    assert_eq!(deliverer.destinations().unwrap()["here"].url, before.url());
    assert_eq!(deliverer.set_destination("here", &at(&after)).unwrap(), Answer::Replaced);
    assert_eq!((after.count(), deliverer.destinations().unwrap()["here"].paused), (0, Some(true)), "it stays paused");
    assert_eq!(deliverer.resume(Part::Destination("here")).unwrap(), Answer::Resumed);
    wait_until("all have arrived", || after.count() == 20);
    deliverer.put(now("of none")).unwrap();
    wait_until("all have arrived", || before.count() == 1);
    deliverer.close(None).unwrap();
    let expected: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    assert_eq!(after.ids(), expected, "in the order of the key");
    assert_eq!(before.ids(), ["of none"]);
}

#[test]
fn one_that_hangs_or_is_gone_holds_up_no_other__d23() {
    let folder = tempfile::tempdir().unwrap();
    let (hanging, well) = (Receiver::new(|_, stream| hang(stream)), accepting());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = Settings { sink_timeout_ms: 200, ..here() };
    let deliverer = Deliverer::open_with(folder.path().join("s.db"), Destination::named(), settings).unwrap();
    deliverer.set_destination("hanging", &at(&hanging)).unwrap();
    let url = format!("http://{gone}/");
    deliverer.set_destination("gone", &NamedSettings { url, ..NamedSettings::default() }).unwrap();
    deliverer.set_destination("well", &NamedSettings { concurrency: Some(2), ..at(&well) }).unwrap();
    for number in 0..300 {
        for name in ["hanging", "gone", "well"] {
            deliverer.put(now(&format!("{name} {number}")).with_key(&number.to_string()).to(name)).unwrap();
        }
    }
    wait_until("all have arrived", || well.count() == 300);
    deliverer.close(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_setting_that_is_not_allowed_is_told_and_no_secret_is_shown__d23() {
    let folder = tempfile::tempdir().unwrap();
    let deliverer = Deliverer::open_with(folder.path().join("s.db"), Destination::named(), here()).unwrap();
    let damaged = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
    let good = || NamedSettings { url: "http://example.org/".to_owned(), ..NamedSettings::default() };
    for (settings, expected) in [
        (NamedSettings::default(), "url is missing"),
        (NamedSettings { rate: Some("fast".to_owned()), ..good() }, "write it as 100/s"),
        (NamedSettings { concurrency: Some(0), ..good() }, "concurrency is 0"),
        (NamedSettings { sink_timeout_s: Some(0.0), ..good() }, "sink_timeout_s is 0 s: it may be 0.001 to 86,400 s"),
        (NamedSettings { rate: Some("0/s".to_owned()), ..good() }, "rate is '0/s': it may be one a day to 1,000,000"),
        (NamedSettings { waits_s: Some(vec![]), ..good() }, "waits_s has 0 waits: it may have 1 to 1,000, or be left"),
        (NamedSettings { waits_s: Some(vec![1.0; 100_000]), ..good() }, "waits_s has 100,000 waits: it may have 1 to"),
        (NamedSettings { waits_s: Some(vec![1.0, 0.0]), ..good() }, "a wait of waits_s is 0 s: it may be 0.001 to"),
        (NamedSettings { disable_after_days: Some(0.0), ..good() }, "disable_after_days is 0 days: it may be 0.01 to"),
        (
            NamedSettings { headers: ["X-A", "x-a"].map(|it| (it.to_owned(), "s3cret".to_owned())).into(), ..good() },
            "headers has a name twice, in another case: a destination sends each header once",
        ),
        (NamedSettings { secrets: Some(vec!["s3cret".to_owned()]), ..good() }, "secret"),
        (NamedSettings { body: NamedBody::Template("{".to_owned()), ..good() }, "the body is not JSON"),
        (NamedSettings { body: NamedBody::Template("[\"{{name}}\"]".to_owned()), ..good() }, "allowed: id, key, due"),
        (NamedSettings { certificates: "s3cret".to_owned(), ..good() }, "have no certificate in PEM"),
        (NamedSettings { certificates: damaged.to_owned(), ..good() }, "have a damaged certificate"),
    ] {
        let error = deliverer.set_destination("x", &settings).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
    }
    for name in ["", "a b", "ä", &"x".repeat(101)] {
        assert!(deliverer.set_destination(name, &good()).unwrap_err().to_string().contains("A-Z"));
    }
    deliverer.close(None).unwrap();
    let deliverer = Deliverer::open(folder.path().join("t.db"), Destination::standard_output()).unwrap();
    assert!(deliverer.set_destination("x", &good()).unwrap_err().to_string().contains("stand beside a webhook"));
    deliverer.close(None).unwrap();
}

#[test]
fn a_body_is_what_is_set_there_and_is_signed_as_it_is_sent__d23() {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), accepting());
    let deliverer = Deliverer::open_with(folder.path().join("s.db"), Destination::named(), here()).unwrap();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let template = r#"{"text":"{{payload.name}} has {{payload.n}}","n":"{{payload.n}}"}"#;
    let payload = r#"{"name":"\"A\"","n":1.50}"#;
    let message = |id| Message::after(id, Duration::ZERO, payload).with_key("kü 1%");
    for (number, (id, body, is_json)) in [
        ("1", NamedBody::Envelope, true),
        ("2", NamedBody::Payload, true),
        ("3", NamedBody::Payload, false),
        ("4", NamedBody::Template(template.to_owned()), true),
    ]
    .into_iter()
    .enumerate()
    {
        deliverer
            .set_destination(
                "here",
                &NamedSettings { body: body.clone(), secrets: Some(vec![secret.into()]), ..at(&receiver) },
            )
            .unwrap();
        assert_eq!(deliverer.destinations().unwrap()["here"].body, body, "it comes back as it was set");
        let message = message(id).to("here").tenant("acme");
        deliverer.put(if is_json { message.json() } else { message }).unwrap();
        wait_until("it has arrived", || receiver.count() == number + 1);
    }
    deliverer.close(None).unwrap();
    let posts = receiver.posts.lock();
    assert!(posts[0].body.starts_with(r#"{"id":"1","key":"kü 1%","#), "{}", posts[0].body);
    assert_eq!((&*posts[1].body, &*posts[2].body), (payload, payload));
    assert_eq!(posts[3].body, r#"{"text":"\"A\" has 1.50","n":1.50}"#);
    let header = |post: usize, name: &str| posts[post].headers.get(name).map(String::as_str).unwrap_or_default();
    let types = [0, 1, 2, 3].map(|post| header(post, "content-type"));
    assert_eq!(types, ["application/json", "application/json", "application/octet-stream", "application/json"]);
    let facts = ["id", "key", "attempt", "redelivered", "tenant"].map(|name| header(1, &format!("tickwheel-{name}")));
    assert_eq!(facts, ["2", "k%C3%BC%201%25", "1", "false", "acme"]);
    assert!(header(1, "tickwheel-due").ends_with('Z') && header(3, "tickwheel-id").is_empty());
    for (number, post) in posts.iter().enumerate() {
        let secrets = [signature::Secret::parse(secret).unwrap()];
        let [id, timestamp, signature] =
            ["id", "timestamp", "signature"].map(|name| header(number, &format!("webhook-{name}")));
        assert_eq!(signatures(&secrets, id, timestamp, &[post.body.as_bytes()]), signature);
    }
}

#[test]
fn a_message_without_what_its_body_needs_is_a_dead_letter_at_once__d23() {
    let (folder, receiver, letters) = (tempfile::tempdir().unwrap(), accepting(), Arc::default());
    // A second attempt would come in an hour.
    let retry = Retry { waits_ms: vec![3_600_000], ..Retry::default() };
    let settings = Settings { retry, observer: Arc::new(Letters(Arc::clone(&letters))), ..here() };
    let deliverer = Deliverer::open_with(folder.path().join("s.db"), Destination::named(), settings).unwrap();
    let template = r#"["{{payload.name}}", "{{payload.city|no city}}"]"#;
    let body = NamedBody::Template(template.to_owned());
    deliverer.set_destination("here", &NamedSettings { body, ..at(&receiver) }).unwrap();
    let put =
        |id, payload: &str| deliverer.put(Message::after(id, Duration::ZERO, payload).json().with_key("k").to("here"));
    put("bad", r#"{"city":"Ulm"}"#).unwrap();
    put("good", r#"{"name":"A"}"#).unwrap();
    wait_until("both have ended", || letters.lock().len() + receiver.count() == 2);
    deliverer.close(None).unwrap();
    let reason = letters.lock().remove(0);
    assert!(reason.contains("it has no payload.name, which the body of its destination needs"), "{reason}");
    assert_eq!(receiver.posts.lock()[0].body, r#"["A", "no city"]"#);
}

pub(super) struct Letters(pub(super) Arc<Mutex<Vec<String>>>);

impl Observer for Letters {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        self.0.lock().extend(letters.iter().map(|it| it.reason.clone()));
        Ok(())
    }

    fn events(&self, _: Vec<Event>) {}
}
