use super::*;

fn lines(bytes: &[u8], max_line: usize) -> Vec<(u64, Vec<u8>, usize)> {
    let block = Block::whole(bytes);
    block.lines(max_line).map(|line| (line.number, line.data.to_vec(), line.size)).collect()
}

/// A stream that gives these pieces, one a read.
struct Pieces(Vec<Vec<u8>>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let Some(piece) = self.0.first_mut() else { return Ok(0) };
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.0.remove(0);
        }
        Ok(count)
    }
}

fn read(pieces: &[&[u8]], block_size: usize, max_line: usize) -> Vec<(u64, Vec<u8>, usize)> {
    let pieces = Pieces(pieces.iter().map(|piece| piece.to_vec()).collect());
    let mut reader = BlockReader::new(pieces, block_size, max_line);
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        found.extend(block.lines(max_line).map(|line| (line.number, line.data.to_vec(), line.size)));
    }
    found
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
    let block = Block::whole(b"\xef\xbb\xbfa");
    assert_eq!(block.lines(9).next().unwrap().start, 3);
}

#[test]
fn a_line_that_is_too_long_is_cut_and_the_next_is_read__d12() {
    let long = vec![b'x'; 5000];
    let bytes = [&long[..], b"\na\n", &long].concat();
    let expected = [(1, long[..KEPT].to_vec(), 5001), (2, b"a\n".to_vec(), 2), (3, long[..KEPT].to_vec(), 5000)];
    assert_eq!(lines(&bytes, 4999), expected);
    for block_size in [1, 3000, 1 << 20] {
        assert_eq!(read(&[&bytes], block_size, 4999), expected, "{block_size}");
    }
    let block = Block::whole(&bytes);
    let error = block.lines(4999).next().unwrap().text(4999).unwrap_err();
    assert_eq!(error.reason, "the record has 5,001 bytes, only the first 1,024 are kept here");
    assert_eq!(error.allowed, "at most 4,999 bytes");
    assert_eq!(lines(&bytes, 5001)[0].1.len(), 5001);
}

#[test]
fn a_stream_gives_the_same_lines_as_its_bytes__d11() {
    let bytes: Vec<u8> =
        (0..40_u8).flat_map(|n| [vec![b'a' + n % 26; usize::from(n) * 97 % 1500], vec![b'\n']].concat()).collect();
    let expected = lines(&bytes, 1300);
    for size in [1, 7, 1000, 100_000] {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(read(&pieces, 1024, 1300), expected, "{size}");
        assert_eq!(read(&pieces, 4096, 1300), expected, "{size}");
    }
}

#[test]
fn a_line_is_there_before_the_next_one_comes__d11() {
    let mut reader = BlockReader::new(Pieces(vec![b"a\nb".into(), b"c\n".into()]), 4096, 100);
    assert_eq!(&*reader.next_block().unwrap().unwrap().bytes, b"a\n");
    let second = reader.next_block().unwrap().unwrap();
    assert_eq!((&second.bytes[..], second.first_line), (&b"bc\n"[..], 2));
    assert!(reader.next_block().unwrap().is_none());
}

#[test]
fn memory_stays_bounded_whatever_a_line_holds__d8() {
    let mut reader = BlockReader::new(std::io::repeat(b'x').take(10 << 20), 4096, 10_000);
    let block = reader.next_block().unwrap().unwrap();
    assert_eq!((block.bytes.len(), block.left_out), (KEPT, (10 << 20) - KEPT));
    assert!(reader.buffer.len() <= 10_000 + KEPT);
    assert!(reader.next_block().unwrap().is_none());
}
