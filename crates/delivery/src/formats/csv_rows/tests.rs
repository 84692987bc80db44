use super::*;
use crate::message::columns::Columns;
use crate::message::{Cancel, MAX_PAYLOAD, Message};

const DUE: &str = "1790000000000";

/// The items of an input that comes in one block.
fn all_items(input: &str, after: u64) -> Vec<Parsed> {
    let mut csv = Csv::new("in.csv", Schema::new(Columns::default(), MAX_PAYLOAD), after);
    let mut found = csv.read(input.as_bytes(), 0, Some(0));
    found.extend(csv.read(b"", 0, Some(0)));
    found
}

fn read(header: &str, row: &str) -> Parsed {
    all_items(&format!("{header}\n{row}\n"), 0).pop().unwrap()
}

fn message(header: &str, row: &str) -> Message {
    match read(header, row) {
        Parsed::Message(incoming) => incoming.message,
        other => panic!("{other:?}"),
    }
}

fn reason(header: &str, row: &str) -> String {
    match read(header, row) {
        Parsed::Bad(bad, _) => bad.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_row_is_a_message_and_an_empty_cell_is_absent__d1() {
    let found = message("id,key,due,payload", &format!("a,,{DUE},x"));
    assert_eq!((found.body.id(), found.body.key(), found.due_ms), ("a", None, 1_790_000_000_000));
    assert_eq!((found.body.payload(), found.body.is_json()), (&b"\"x\""[..], true));
    assert_eq!(message("id,due,x,y", &format!("a,{DUE},1.50,")).body.payload(), b"{\"x\":\"1.50\",\"y\":\"\"}");
    let Parsed::Message(incoming) = read("id,due", &format!("a,{DUE}")) else { panic!() };
    let origin = incoming.origin.unwrap();
    assert_eq!((origin.line, origin.record()), (2, format!("a,{DUE}").as_bytes()));
}

#[test]
fn a_row_has_either_payload_or_base64__d1() {
    let header = "id,due,payload,payload_base64";
    let with = |cells: &str| format!("a,{DUE},{cells}");
    assert_eq!(message(header, &with(",/w==")).body.payload(), b"\xff");
    assert_eq!(message(header, &with("x,")).body.payload(), b"\"x\"");
    assert_eq!(message(header, &with(",")).body.payload(), b"\"\"");
    assert_eq!(reason(header, &with("x,/w==")), "both payload and payload_base64 are given");
}

#[test]
fn delays_and_cancels_come_in_columns_too__d7() {
    let header = "id,due,delay_ms,op,x";
    assert_eq!(message(header, "a,,1.5,,").due_ms, 2);
    assert_eq!(message(header, "a,, 5 ,,").due_ms, 5);
    let Parsed::Cancel(cancel, origin) = read(header, "b,,,cancel,") else { panic!() };
    assert_eq!(cancel, Cancel { id: "b".into(), key: None, keep_days: 0 });
    assert_eq!(origin.line, 2);
    assert_eq!(reason(header, "c,,,cancel,1"), "a cancel has more than id and key");
    assert_eq!(reason(header, "d,,soon,,"), "delay_ms is not a number in range");
}

#[test]
fn what_is_wrong_is_said_of_its_row__d2() {
    assert_eq!(reason("id,due,x", "a,5"), "the row has 2 cells");
    assert!(reason("id,due", "a,1790000000").starts_with("due is 1790000000, which looks like seconds"));
    assert!(reason("id,due", "a,soon").starts_with("due is not a time"));
}

#[test]
fn rows_that_an_earlier_run_has_accepted_are_skipped_but_the_header_is_read__d11() {
    let input = format!("id,due\na,{DUE}\nb,\"{DUE}\"\nc,{DUE}");
    let lines = |after| all_items(&input, after).iter().map(|item| item.origin().unwrap().line).collect::<Vec<_>>();
    assert_eq!([lines(0), lines(2), lines(4)], [vec![2, 3, 4], vec![3, 4], vec![]]);
}

#[test]
fn below_a_header_that_can_not_be_used_nothing_is_read__d2() {
    let mut csv = Csv::new("in.csv", Schema::new(Columns::default(), MAX_PAYLOAD), 0);
    let items = csv.read(format!("\nname,due\na,{DUE}\n").as_bytes(), 0, None);
    let [Parsed::Bad(bad, origin)] = &items[..] else { panic!("{items:?}") };
    assert_eq!(
        (bad.reason.as_str(), origin.line, origin.record()),
        ("the header has no column id", 2, &b"name,due"[..])
    );
    assert!(csv.is_refused);
    assert!(csv.read(b"b,5\n", 0, None).is_empty());
}

#[test]
fn what_waits_for_events_and_events_stand_in_one_file__d1_d22() {
    let header = "id,key,due,op,until_event,event,remember_ms,payload";
    let found = message(header, &format!("a,k,{DUE},,lost paid,,,x"));
    assert_eq!(&*found.body.until().unwrap().names, "lost paid");
    assert_eq!(found.body.payload(), b"\"x\"");
    assert_eq!(message(header, &format!("b,k,{DUE},,,,,")).body.until(), None);
    let Parsed::Event(event, origin) = read(header, "e,k,,event,,paid,5000,{\"n\":1}") else { panic!() };
    assert_eq!((&*event.event, event.remember_ms, &*event.payload), ("paid", Some(5_000), &b"{\"n\":1}"[..]));
    assert_eq!(origin.record(), b"e,k,,event,,paid,5000,{\"n\":1}");
    let Parsed::Event(event, _) = read(header, "f,k,,event,,paid,,") else { panic!() };
    assert_eq!((event.remember_ms, &*event.payload), (None, &b"null"[..]));
    let Parsed::Cancel(..) = read(header, "a,k,,cancel,,,,") else { panic!() };
    assert_eq!(reason(header, "f,,,event,,paid,,"), "an event has no key");
    assert_eq!(reason(header, "f,k,,event,,,,"), "'' is no name of an event");
    assert_eq!(reason(header, &format!("a,,{DUE},,paid,,,")), "until_event is on a message that has no key");
    let near = |name: &str| reason(&format!("id,key,op,event,{name}"), "f,k,event,paid,5");
    assert_eq!(near("remeber_ms"), "'remeber_ms' is not a field: remember_ms is probably meant");
    assert_eq!(reason("id,key,op,evnt", "f,k,event,paid"), "'evnt' is not a field: event is probably meant");
    // Without `op` they are ordinary columns.
    assert_eq!(message("id,due,event", &format!("a,{DUE},x")).body.payload(), b"{\"event\":\"x\"}");
}
