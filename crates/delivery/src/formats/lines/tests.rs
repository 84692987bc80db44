use super::*;

fn lines(bytes: &[u8], max_line: usize) -> Vec<(u64, Vec<u8>, usize)> {
    let block = Block::whole(bytes);
    block.lines(max_line).map(|line| (line.number, line.data.to_vec(), line.size)).collect()
}

#[test]
fn lines_keep_their_newline_and_the_last_may_lack_it() {
    assert_eq!(lines(b"", 9), []);
    assert_eq!(lines(b"a\n\nb", 9), [(1, b"a\n".into(), 2), (2, b"\n".into(), 1), (3, b"b".into(), 1)]);
}

#[test]
fn a_byte_order_mark_is_dropped_at_the_start_only() {
    let found = lines(b"\xef\xbb\xbfa\n\xef\xbb\xbfb", 9);
    assert_eq!(found[0], (1, b"a\n".into(), 5));
    assert_eq!(found[1].1, b"\xef\xbb\xbfb");
}

#[test]
fn a_line_that_is_too_long_is_cut_and_the_next_is_read__d12() {
    let long = vec![b'x'; 5000];
    let bytes = [&long[..], b"\na\n", &long].concat();
    let expected = [(1, long[..KEPT].to_vec(), 5001), (2, b"a\n".to_vec(), 2), (3, long[..KEPT].to_vec(), 5000)];
    assert_eq!(lines(&bytes, 4999), expected);
    let block = Block::whole(&bytes);
    let error = block.lines(4999).next().unwrap().text(4999).unwrap_err();
    assert_eq!(error.reason, "the record has 5,001 bytes, only the first 1,024 are kept here");
    assert_eq!(error.allowed, "at most 4,999 bytes");
    assert_eq!(lines(&bytes, 5001)[0].1.len(), 5001);
}

#[test]
fn text_in_utf_16_is_named__d2() {
    for bytes in [&b"\xff\xfei\0d\0\n\0"[..], b"\xfe\xff\0i\0d\0\n"] {
        let error = Block::whole(bytes).lines(99).next().unwrap().text(99).unwrap_err();
        assert_eq!(error.reason, "the text is UTF-16");
    }
    let block = Block::whole(b"a\n\xff\xfe");
    assert_eq!(block.lines(9).nth(1).unwrap().text(9).unwrap_err().reason, "byte 1 of the line is not UTF-8");
}
