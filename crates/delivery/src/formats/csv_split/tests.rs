use super::*;
use crate::formats::lines::{Block, KEPT};

const MAX: usize = 64;

/// The first line of a row, the bytes of the row, and its cells or its error.
type Found = (u64, Vec<u8>, Result<Vec<String>, String>);

fn found(Row { line, data, cells }: Row<'_>) -> Found {
    (line, data.to_vec(), cells.map(<[String]>::to_vec).map_err(|bad| bad.reason))
}

/// The rows of an input. `left_out`: bytes of its last line that are missing.
fn rows(max_row: usize, input: &[u8], left_out: usize) -> Vec<Found> {
    let mut split = CsvSplit::new(max_row, "id");
    let block = Block { bytes: input, first_line: 1, left_out };
    let mut rows: Vec<Found> = block.lines(max_row).filter_map(|line| split.add(&line).map(found)).collect();
    rows.extend(split.end().map(found));
    rows
}

fn all_rows(input: &[u8]) -> Vec<Found> {
    rows(MAX, input, 0)
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
fn a_row_that_can_not_be_read_ends_with_the_line_where_that_is_found__d2() {
    let after_quote = "not a row of CSV: ',' expected after '\"'";
    assert_eq!(
        all_rows(b"a,\"b\nc,d\n\"e\"f\n\"g\"\",h\n\"i\"j,\"\nk,\"\"\nl\rm\nn\n\"o\np\n"),
        [
            bad(1, b"a,\"b\nc,d\n\"e\"f", after_quote),
            bad(4, b"\"g\"\",h\n\"i\"j,\"", after_quote),
            good(6, "k,\"\"", &["k", ""]),
            bad(7, b"l\rm", "not a row of CSV: new-line character seen in unquoted field"),
            good(8, "n", &["n"]),
            bad(9, b"\"o\np", "not a row of CSV: unexpected end of data"),
        ]
    );
    assert_eq!(
        all_rows(b"\"a\n\xff\"\nb\n\xff\nc\n"),
        [
            bad(1, b"\"a\n\xff\"", "line 2 in a quoted cell is too long, or not UTF-8"),
            good(3, "b", &["b"]),
            bad(4, b"\xff", "byte 1 of the line is not UTF-8"),
            good(5, "c", &["c"]),
        ]
    );
}

#[test]
fn a_quote_that_is_never_closed_costs_no_more_than_a_row_may_have__d12() {
    let line = "x".repeat(MAX / 2);
    let input = format!("\"a\n{line}\n{line}\nb\n");
    let lost = format!("\"a\n{line}\n{line}");
    assert_eq!(
        all_rows(input.as_bytes()),
        [bad(1, lost.as_bytes(), "a quoted cell does not end"), good(4, "b", &["b"])]
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
fn a_line_that_is_too_long_is_a_row__d12() {
    let cut = [b'x'; KEPT];
    let long = bad(1, &cut, "the record has 3,000 bytes, only the first 1,024 are kept here");
    assert_eq!(rows(2000, &cut, 3000 - KEPT), [long]);
    let lost = [&b"\"a\n"[..], &cut].concat();
    let long = bad(1, &lost, "line 2 in a quoted cell is too long, or not UTF-8");
    assert_eq!(rows(2000, &lost, 3000 - KEPT), [long]);
}

/// A cell that the crate reads like a row of RFC 4180, although it is none, would be an error; so would one that is.
#[test]
fn a_row_is_read_if_it_can_be_written_so__d2() {
    const PARTS: [&str; 8] = ["\"", "\"", "\"\"", ",", "\n", "\r\n", "a", "é"];
    let (mut read, mut broken) = (0, 0);
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cells: Vec<String> = (0..random.usize(1..4))
            .map(|_| (0..random.usize(..5)).map(|_| PARTS[random.usize(..PARTS.len())]).collect())
            .collect();
        let needs_quotes = |cell: &str| cell.contains(['"', ',', '\n', '\r']);
        let mut written = Vec::new();
        for cell in &cells {
            let is_quoted = needs_quotes(cell) || random.bool();
            let quoted = format!("\"{}\"", cell.replace('"', "\"\""));
            written.push(if is_quoted { quoted } else { cell.clone() });
        }
        let mut row = written.join(",");
        if row.is_empty() {
            continue;
        }
        let expected = good(1, &row, &cells.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(rows(1 << 20, format!("{row}\n").as_bytes(), 0), [expected], "seed {seed}");
        read += 1;
        // Anything after a closing quote, also more quotes, makes it no row.
        let at = random.usize(..cells.len());
        if written[at].starts_with('"') {
            written[at] += ["a", "a\"", "a\"\"", "é", "a\"\"\""][random.usize(..5)];
            row = written.join(",");
            let first = rows(1 << 20, format!("{row}\n").as_bytes(), 0).remove(0);
            assert!(first.2.is_err(), "seed {seed}: {row:?}: {first:?}");
            broken += 1;
        }
    }
    assert!(read > 15_000 && broken > 8_000, "{read} {broken}");
}
