use super::*;
use crate::formats::lines::KEPT;

const MAX: usize = 64;

/// The first line of a row, the bytes of the row, and its cells or its error.
type Found = (u64, Vec<u8>, Result<Vec<String>, String>);

fn rows(split: &mut CsvSplit, block: &[u8], left_out: usize) -> Vec<Found> {
    let mut found = Vec::new();
    split.add(block, left_out);
    while let Some(Row { line, data, cells }) = split.next_row() {
        found.push((line, data.to_vec(), cells.map(<[String]>::to_vec).map_err(|bad| bad.reason)));
    }
    found
}

/// All rows of an input that comes in one block.
fn all_rows(input: &[u8]) -> Vec<Found> {
    let mut split = CsvSplit::new(MAX, "id");
    let mut found = rows(&mut split, input, 0);
    found.extend(rows(&mut split, b"", 0));
    found
}

fn good(line: u64, data: &str, cells: &[&str]) -> Found {
    (line, data.as_bytes().to_vec(), Ok(cells.iter().map(ToString::to_string).collect()))
}

fn bad(line: u64, data: &[u8], reason: &str) -> Found {
    (line, data.to_vec(), Err(reason.to_owned()))
}

#[test]
fn cells_may_stand_in_quotes_and_rows_may_span_lines__d2() {
    let input = "a,\"1,5\",\"say \"\"hi\"\"\"\r\n\r\n,\"two\nlines\",c\"d\"\r\r\nx";
    let second = ",\"two\nlines\",c\"d\"";
    let expected = [
        good(1, "a,\"1,5\",\"say \"\"hi\"\"\"", &["a", "1,5", "say \"hi\""]),
        good(3, second, &["", "two\nlines", "c\"d\""]),
        good(5, "x", &["x"]),
    ];
    assert_eq!(all_rows(input.as_bytes()), expected);
}

#[test]
fn a_row_that_can_not_be_read_costs_its_first_line__d2() {
    let after_quote = "not a row of CSV: ',' expected after '\"'";
    assert_eq!(
        all_rows(b"a,\"b\nc,d\n\"e\"f\ng\rh\ni\n\"j\n"),
        [
            bad(1, b"a,\"b", after_quote),
            good(2, "c,d", &["c", "d"]),
            bad(3, b"\"e\"f", after_quote),
            bad(4, b"g\rh", "not a row of CSV: new-line character seen in unquoted field"),
            good(5, "i", &["i"]),
            bad(6, b"\"j", "not a row of CSV: unexpected end of data"),
        ]
    );
    assert_eq!(
        all_rows(b"\"a\n\xff\"\nb\n"),
        [
            bad(1, b"\"a", "line 2 in a quoted cell is too long, or not UTF-8"),
            bad(2, b"\xff\"", "byte 1 of the line is not UTF-8"),
            good(3, "b", &["b"]),
        ]
    );
}

#[test]
fn the_header_says_what_separates_cells__d2() {
    let cells = |input: &[u8]| all_rows(input).into_iter().map(|(_, _, cells)| cells.unwrap()).collect::<Vec<_>>();
    for separator in [",", ";", "\t"] {
        let input = ["\n\"a,b;c\td\"|e\n1|2\n", ""].concat().replace('|', separator);
        assert_eq!(cells(input.as_bytes()), [["a,b;c\td", "e"], ["1", "2"]]);
    }
    assert_eq!(cells(b"a;b,c\n1,2;3\n"), [["a;b", "c"], ["1", "2;3"]]);
    assert_eq!(cells(b"\"a\nb\"\n1;2\n"), [["a\nb"], ["1;2"]]);
}

#[test]
fn a_line_that_is_too_long_ends_the_row_before_it__d12() {
    let mut split = CsvSplit::new(2000, "id");
    let cut = [b'x'; KEPT];
    assert_eq!(rows(&mut split, b"\"a\n", 0), []);
    let long = "the record has 3,000 bytes, only the first 1,024 are kept here";
    let expected = [bad(1, b"\"a", "a quoted cell does not end"), bad(2, &cut, long)];
    assert_eq!(rows(&mut split, &cut, 3000 - KEPT), expected);
    assert_eq!(rows(&mut split, b"b\n", 0), [good(3, "b", &["b"])]);
}

/// The slowest reader: with each line it reads the row from its beginning, a character at a time.
fn model(input: &[u8]) -> Vec<Found> {
    let lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    let is_end = |char: &char| matches!(char, '\r' | '\n');
    let shown = |bytes: &[u8]| {
        let length = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
        bytes[..length].to_vec()
    };
    let (mut found, mut first, mut separator) = (Vec::new(), 0, None);
    while first < lines.len() {
        let mut row = String::new();
        let mut last = first;
        let (data, read, next) = loop {
            let Some(line) = lines.get(last) else {
                break (lines[first], Err("not a row of CSV: unexpected end of data".to_owned()), first + 1);
            };
            let whole = &lines[first..=last].concat();
            if last > first && whole.len() > MAX {
                break (lines[first], Err("a quoted cell does not end".to_owned()), first + 1);
            }
            let block = Block { bytes: line, first_line: last as u64 + 1, left_out: 0 };
            match block.lines(MAX).next().unwrap().text(MAX) {
                Ok(text) => row += text,
                Err(bad) if last == first => break (lines[first], Err(bad.reason), first + 1),
                Err(_) => {
                    let reason = format!("line {} in a quoted cell is too long, or not UTF-8", last + 1);
                    break (lines[first], Err(reason), first + 1);
                }
            }
            if separator.is_none() && !row.chars().all(|char| is_end(&char)) {
                let separates = |char: &char| matches!(cells_of(&row, *char), Some(Ok(cells)) if cells.len() > 1);
                separator = Some([',', ';', '\t'].into_iter().find(separates).unwrap_or(','));
            }
            last += 1;
            match cells_of(&row, separator.unwrap_or(',')) {
                None => {}
                Some(Ok(cells)) => break (lines[first], Ok(cells), last),
                Some(Err(what)) => break (lines[first], Err(format!("not a row of CSV: {what}")), first + 1),
            }
        };
        if !row.chars().all(|char| is_end(&char)) || read.is_err() {
            let data = if read.is_ok() { lines[first..next].concat() } else { data.to_vec() };
            found.push((first as u64 + 1, shown(&data), read));
        }
        first = next;
    }
    found
}

/// The cells of a row. `None` if it goes on.
fn cells_of(row: &str, separator: char) -> Option<Result<Vec<String>, String>> {
    let mut cells = vec![String::new()];
    let mut chars = row.chars().peekable();
    let (mut is_quoted, mut is_new, mut is_closed) = (false, true, false);
    while let Some(char) = chars.next() {
        let cell = cells.last_mut().unwrap();
        if is_quoted {
            if char != '"' {
                cell.push(char);
            } else if chars.next_if_eq(&'"').is_some() {
                cell.push('"');
            } else {
                (is_quoted, is_closed) = (false, true);
            }
        } else if char == '"' && is_new {
            (is_quoted, is_new) = (true, false);
        } else if char == separator {
            cells.push(String::new());
            (is_new, is_closed) = (true, false);
        } else if matches!(char, '\r' | '\n') {
            let is_over = chars.all(|char| matches!(char, '\r' | '\n'));
            return Some(if is_over { Ok(cells) } else { Err("new-line character seen in unquoted field".to_owned()) });
        } else if is_closed {
            return Some(Err(format!("'{separator}' expected after '\"'")));
        } else {
            cell.push(char);
            is_new = false;
        }
    }
    (!is_quoted).then_some(Ok(cells))
}

#[test]
fn random_input_in_random_blocks_has_the_rows_of_the_model__d2() {
    const PARTS: [&[u8]; 16] = [
        b"\"",
        b"\"",
        b"\"\"",
        b",",
        b",",
        b";",
        b"\t",
        b"\n",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"a",
        b"bc",
        b"\xc3\xa9",
        b"\xff",
    ];
    let (mut broken, mut spanning, mut blocks) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let kinds = random.usize(10..=PARTS.len());
        let size = random.usize(0..120);
        let mut input: Vec<u8> = (0..size).flat_map(|_| PARTS[random.usize(..kinds)]).copied().collect();
        if random.u8(..8) == 0 {
            let at = random.usize(..=input.len());
            input.splice(at..at, vec![b'x'; MAX]);
        }
        let mut split = CsvSplit::new(MAX, "id");
        split.patience = isize::MAX / 2;
        let mut found = Vec::new();
        let mut block = Vec::new();
        for line in input.split_inclusive(|byte| *byte == b'\n') {
            block.extend_from_slice(line);
            if random.bool() {
                found.extend(rows(&mut split, &block, 0));
                block.clear();
                blocks += 1;
            }
        }
        if !block.is_empty() {
            found.extend(rows(&mut split, &block, 0));
        }
        found.extend(rows(&mut split, b"", 0));
        assert_eq!(found, model(&input), "seed {seed}: {}", input.escape_ascii());
        broken += found.iter().filter(|(_, _, cells)| cells.is_err()).count();
        spanning += found.iter().filter(|(_, data, cells)| cells.is_ok() && data.contains(&b'\n')).count();
    }
    assert!(broken > 10_000 && spanning > 5_000 && blocks > 20_000, "{broken} {spanning} {blocks}");
}

#[test]
fn rows_that_do_not_end_are_not_read_again_and_again__d12() {
    for row in ["x\",5,\"\n", "a,5,\"open\n", "a,5,\"open\nb,5,\"\"\"\n", "a,5,\"\nb,5,\"\"\n"] {
        let again = [1000, 4000].map(|times| {
            let mut split = CsvSplit::new(1 << 20, "id");
            split.patience = 10_000;
            let input = row.repeat(times);
            rows(&mut split, input.as_bytes(), 0);
            rows(&mut split, b"", 0);
            let again = 10_000 + input.len() as isize - split.patience;
            assert!(again <= 10_000 + input.len() as isize + row.len() as isize, "{again}");
            again
        });
        assert!(again[1] < 5 * again[0].max(10_000), "{row:?}: {again:?}");
    }
}
