//! The public API, as a program uses it: real threads, a real clock, and a wait for each event.

#![expect(non_snake_case, reason = "a test name ends with the rule it holds up, as in __d9")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use tickwheel_delivery::internal::{SystemWallTime, WallTime as _};
use tickwheel_delivery::{
    Answer, Deliverer, Delivery, DeliveryError, Destination, Event, Letter, Message, Observer, Part, Retry, Settings,
    TenantSettings, Verdict,
};

const HOUR: Duration = Duration::from_secs(3_600);
/// The longest wait for an event.
const LONG: Duration = Duration::from_secs(60);

/// Passes the dead letters on.
struct Told(Sender<Letter>);

impl Observer for Told {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        for letter in letters {
            self.0.send(letter.clone()).unwrap();
        }
        Ok(())
    }

    fn events(&self, _: Vec<Event>) {}
}

/// A message that arrived: id, key and payload.
type Arrived = (String, Option<String>, Vec<u8>);

/// A destination that accepts every message.
fn taking() -> (Destination, Receiver<Arrived>) {
    let (send, arrived): (Sender<Arrived>, _) = channel();
    let to = Destination::function(move |it: &Delivery| {
        let _ = send.send((it.id().to_owned(), it.key().map(str::to_owned), it.payload().to_owned()));
        Verdict::Delivered
    });
    (to, arrived)
}

fn open(to: Destination) -> (Deliverer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Deliverer::open(folder.path().join("store.db"), to).unwrap(), folder)
}

#[test]
fn messages_of_one_key_arrive_in_the_order_of_their_due_times_and_none_is_early__d3_d4() {
    let (send, arrived) = channel();
    let to = Destination::function(move |it: &Delivery| {
        send.send((it.id().to_owned(), it.lateness_us, it.delivered_at_ms - it.due_ms)).unwrap();
        Verdict::Delivered
    });
    let (deliverer, _folder) = open(to);
    let start = UNIX_EPOCH + Duration::from_micros(SystemWallTime.now_us() as u64);
    let at = |id: &str, ms| Message::at(id, start + Duration::from_millis(ms), "x").with_key("k");
    let answers = deliverer.submit([at("third", 250), at("first", 50), at("second", 150)]).unwrap().answers().unwrap();
    assert_eq!(answers, [const { Ok(Answer::Accepted) }; 3]);
    for expected in ["first", "second", "third"] {
        let (id, lateness_us, late_ms) = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(id, expected);
        assert!(lateness_us >= 0 && late_ms >= 0, "{id} is {lateness_us} us late");
    }
    assert!(deliverer.wait_until_empty(LONG).unwrap());
    assert!(deliverer.is_empty());
    let summary = deliverer.close(Some(LONG)).unwrap();
    assert_eq!((summary.accepted, summary.delivered, summary.not_delivered()), (3, 3, 0));
}

#[test]
fn a_message_that_can_not_be_is_refused_alone_and_by_put_with_what_is_allowed__d2() {
    let (deliverer, _folder) = open(taking().0);
    let good = |id: &str| Message::after(id, HOUR, "x");
    let mixed = [good(""), good("a"), good("b").json(), good("c"), good("d").with_key("")];
    let answers = deliverer.submit(mixed).unwrap().answers().unwrap();
    let reasons: Vec<Option<&str>> =
        answers.iter().map(|it| it.as_ref().err().map(|bad| bad.reason.as_str())).collect();
    let not_json = Some("the payload is not JSON: expected value, at byte 1");
    assert_eq!(reasons, [Some("id is empty"), None, not_json, None, Some("key is empty")]);
    assert_eq!(deliverer.len(), 2);
    let DeliveryError::Usage(text) = deliverer.put(good("")).unwrap_err() else { panic!() };
    assert_eq!(text, "id is empty (allowed: id: text, not empty)");
    let before_1970 = Message::at("e", UNIX_EPOCH - HOUR, "x");
    let DeliveryError::Usage(text) = deliverer.put(before_1970).unwrap_err() else { panic!() };
    assert!(text.starts_with("due_ms is out of range"), "{text}");
    assert!(matches!(deliverer.cancel(None, ""), Err(DeliveryError::Usage(_))));
    assert!(matches!(deliverer.state(Some(""), "a"), Err(DeliveryError::Usage(_))));
    assert!(deliverer.submit([]).unwrap().answers().unwrap().is_empty(), "nothing has no answer, and no wait");
    deliverer.close(Some(LONG)).unwrap();
}

#[test]
fn a_due_time_is_rounded_up_and_never_wraps__d3() {
    let at = |due: SystemTime| Message::at("a", due, "").due_ms();
    assert_eq!(at(UNIX_EPOCH + Duration::from_nanos(1)), 1);
    assert_eq!(at(UNIX_EPOCH - Duration::from_micros(2_500)), -2);
    assert_eq!(Message::after("a", Duration::MAX, "").due_ms(), i64::MAX);
    let before_ms = SystemWallTime.now_us() / 1_000;
    let due_ms = Message::after("a", Duration::from_micros(1_500), "").due_ms();
    assert!(due_ms >= before_ms + 2, "{due_ms} is early");
}

#[test]
fn lines_and_rows_are_answered_each_and_a_bad_one_is_no_dead_letter__d11() {
    let folder = tempfile::tempdir().unwrap();
    let (told, letters) = channel();
    let settings = Settings { observer: Arc::new(Told(told)), ..Settings::default() };
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), taking().0, settings).unwrap();
    let lines = b"{\"id\":\"a\",\"delay_ms\":3600000}\n\noops\n{\"op\":\"cancel\",\"id\":\"a\"}\n";
    let answers = deliverer.submit_ndjson(lines).unwrap().answers().unwrap();
    assert_eq!((answers.len(), &answers[0], &answers[2]), (3, &Ok(Answer::Accepted), &Ok(Answer::Cancelled)));
    assert!(answers[1].as_ref().unwrap_err().reason.starts_with("not a JSON object: "));

    let (ids, delays): (_, Int64Array) = (StringArray::from(vec!["b", "c"]), vec![Some(3_600_000), None].into());
    let rows: [(&str, arrow_array::ArrayRef); 2] = [("id", Arc::new(ids)), ("delay_ms", Arc::new(delays))];
    let batch = RecordBatch::try_from_iter(rows).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(&batch).unwrap();
    let answers = deliverer.submit_arrow(&writer.into_inner().unwrap()).unwrap().answers().unwrap();
    assert_eq!(answers[0], Ok(Answer::Accepted));
    assert_eq!(answers[1].as_ref().unwrap_err().reason, "due is missing");
    assert!(matches!(deliverer.submit_arrow(b"oops"), Err(DeliveryError::Usage(_))));
    assert_eq!(deliverer.close(Some(LONG)).unwrap().dead_letters, 0);
    assert!(letters.try_recv().is_err());
}

#[test]
fn a_function_that_refuses_or_panics_is_called_again_and_then_the_message_is_a_dead_letter__d6() {
    let folder = tempfile::tempdir().unwrap();
    let (told, letters) = channel();
    let to = Destination::function(|it: &Delivery| match it.id() {
        "panics" => std::panic::resume_unwind(Box::new("on purpose")), // without the panic hook's message
        "refused" => Verdict::Refused("no".to_owned()),
        _ => Verdict::Delivered,
    });
    let retry = Retry { max_attempts: 2, waits_ms: vec![1], ..Retry::default() };
    let settings = Settings { retry, observer: Arc::new(Told(told)), ..Settings::default() };
    let deliverer = Deliverer::open_with(folder.path().join("store.db"), to, settings).unwrap();
    deliverer
        .submit(["panics", "refused", "fine"].map(|id| Message::after(id, Duration::ZERO, "")))
        .unwrap()
        .answers()
        .unwrap();
    assert!(deliverer.wait_until_empty(LONG).unwrap());
    let mut reasons = [(); 2].map(|()| letters.recv_timeout(LONG).unwrap().reason);
    reasons.sort();
    assert_eq!(
        reasons,
        [
            "gave up after 2 attempts: no",
            "gave up after 2 attempts: the function panicked: see the output of the panic hook"
        ]
    );
    assert_eq!(deliverer.state(None, "refused").unwrap(), Answer::Dead);
    assert_eq!(deliverer.state(None, "fine").unwrap(), Answer::Delivered);
    let summary = deliverer.close(Some(LONG)).unwrap();
    assert_eq!((summary.delivered, summary.undeliverable), (1, 2));
}

#[test]
fn what_waits_at_the_close_is_delivered_once_the_store_is_opened_again__d5() {
    let is_gone = |_: &Delivery| Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None };
    let (deliverer, folder) = open(Destination::function(is_gone));
    let store = folder.path().join("store.db");
    deliverer
        .submit([Message::after("a", Duration::ZERO, "[1]").json(), Message::after("b", HOUR, "")])
        .unwrap()
        .answers()
        .unwrap();
    let second = Deliverer::open(&store, taking().0).expect_err("it is open").to_string();
    assert!(second.ends_with("store.db already: close it there first, or name another store"), "{second}");
    assert_eq!(deliverer.close(Some(LONG)).unwrap().not_delivered(), 2);
    assert!(matches!(deliverer.put(Message::after("c", HOUR, "")), Err(DeliveryError::Closed)));
    assert!(deliverer.failure().is_none());

    let (to, arrived) = taking();
    let again = Deliverer::open_with(&store, to, Settings { is_standby: true, ..Settings::default() }).unwrap();
    assert_eq!(arrived.recv_timeout(LONG).unwrap(), ("a".to_owned(), None, b"[1]".to_vec()));
    assert_eq!(again.cancel(None, "b").unwrap(), Answer::Cancelled);
    assert!(again.wait_until_empty(LONG).unwrap());
    assert_eq!(again.close(Some(LONG)).unwrap().resumed, 2);
}

#[test]
fn a_destination_that_can_not_be_opened_is_an_error_of_the_opening__d13() {
    let folder = tempfile::tempdir().unwrap();
    let to = Destination::file(folder.path().join("no folder").join("out.ndjson"));
    let error = Deliverer::open(folder.path().join("store.db"), to).expect_err("it has no folder");
    assert!(matches!(error, DeliveryError::Usage(_)), "{error}");
}

#[test]
fn a_file_gets_a_line_for_each_message__d10() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.ndjson");
    let deliverer = Deliverer::open(folder.path().join("store.db"), Destination::file(&out)).unwrap();
    deliverer.put(Message::after("a", Duration::ZERO, "[1]").json()).unwrap();
    assert!(deliverer.wait_until_empty(LONG).unwrap());
    deliverer.close(Some(LONG)).unwrap();
    let text = std::fs::read_to_string(out).unwrap();
    assert!(text.starts_with("{\"id\":\"a\",\"key\":null,\"due\":\"") && text.contains("\"payload\":[1],"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_store_of_another_format_is_refused_and_left_alone__d20() {
    let (deliverer, folder) = open(taking().0);
    deliverer.close(Some(LONG)).unwrap();
    let path = folder.path().join("store.db");
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[60..64], [0, 0, 0, 13], "the number of the format is in the head of the file");
    bytes[63] = 3;
    std::fs::write(&path, &bytes).unwrap();
    let error = Deliverer::open(&path, taking().0).unwrap_err();
    let text = format!(
        "{} is a store of format 3, and this tickwheel reads and writes format 13 alone: deliver its messages with the \
         tickwheel that made it, or name another file",
        path.display()
    );
    assert!(matches!(&error, DeliveryError::Usage(said) if *said == text), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_tenant_is_set_and_paused_by_the_program_and_a_bad_setting_is_refused__d24() {
    let (to, arrived) = taking();
    let (deliverer, _folder) = open(to);
    let bad = deliverer.set_tenant("a", &TenantSettings { weight: Some(101), ..TenantSettings::default() });
    assert!(matches!(&bad, Err(DeliveryError::Usage(said)) if said.starts_with("weight is 101")), "{bad:?}");
    assert!(matches!(deliverer.pause(Part::Tenant("a b")), Err(DeliveryError::Usage(_))));
    let settings = TenantSettings { rate: Some("1000/s".to_owned()), weight: Some(3), ..TenantSettings::default() };
    assert_eq!(deliverer.set_tenant("a", &settings).unwrap(), Answer::Accepted);
    assert_eq!(deliverer.pause(Part::Tenant("a")).unwrap(), Answer::Paused);
    for (id, tenant) in [("1", "a"), ("2", "b")] {
        deliverer.put(Message::after(id, Duration::ZERO, "x").tenant(tenant)).unwrap();
    }
    assert_eq!(arrived.recv_timeout(LONG).unwrap().0, "2");
    assert_eq!(deliverer.tenants().unwrap()["a"], TenantSettings { paused: Some(true), ..settings });
    assert_eq!(deliverer.resume(Part::Tenant("a")).unwrap(), Answer::Resumed);
    assert_eq!(arrived.recv_timeout(LONG).unwrap().0, "1");
    assert_eq!(deliverer.remove_tenant("a").unwrap(), Answer::Removed);
    assert_eq!(deliverer.remove_tenant("a").unwrap(), Answer::Unknown);
}
