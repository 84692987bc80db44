use super::*;

fn message(key: Option<&str>, id: &str, payload: &[u8], is_json: bool) -> Message {
    Message { body: Body::new(key, id, payload, is_json), due_ms: 5, delay_ms: None }
}

fn reason(message: Message) -> String {
    checked(message, 10).unwrap_err().reason
}

#[test]
fn the_parts_of_a_body_come_back_the_same() {
    for key in [None, Some("k"), Some("")] {
        let body = Body::new(key, "é", b"\xff", false);
        assert_eq!((body.key(), body.id(), body.payload(), body.is_json()), (key, "é", &b"\xff"[..], false));
    }
    assert_eq!(message(Some("k"), "é", b"123", true).size_in_memory(), 206);
}

#[test]
fn a_message_made_by_a_program_is_checked_by_the_rules_for_records__d1() {
    assert_eq!(reason(message(None, "", b"1", true)), "id is empty");
    assert_eq!(reason(message(Some(""), "a", b"1", true)), "key is empty");
    assert_eq!(reason(message(None, "a", b"12345678901", false)), "the payload has 11 bytes");
    assert_eq!(reason(message(None, "a", b"[1,]", true)), "the payload is not JSON: expected value, at byte 4");
    assert_eq!(reason(Message { due_ms: -1, ..message(None, "a", b"1", true) }), "due_ms is out of range");
    for delay_ms in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
        let wrong = Message { delay_ms: Some(delay_ms), ..message(None, "a", b"1", true) };
        assert_eq!(reason(wrong), "delay_ms is not a number in range", "{delay_ms}");
    }
    let good = message(Some("k"), "a", b"[1,]", false);
    assert_eq!(checked(good.clone(), 10), Ok(good), "a due time in 1970 is one, and bytes are bytes");
}

#[test]
fn json_of_a_program_is_put_on_one_line__d11() {
    let kept = checked(message(Some("k"), "a", b"[1,\r\n2]", true), 10).unwrap();
    assert_eq!(kept, message(Some("k"), "a", b"[1,  2]", true));
}
