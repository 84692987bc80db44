//! Measures this timer beside the ones that a Rust program could use instead.
//!
//!     peers [--repeats 5] [--count 1000000] [--only-work WORK] [--only-side SIDE] [--output FILE] [--parking-lot PROGRAM]
//!     peers one WORK SIDE [--count 1000000]
//!
//! The first command measures everything and writes `build/bench/rust.json` for the report. `--only-work` and `--only-side`
//! may be given several times. A run with one of them writes nothing without `--output`, so that it does not replace a
//! complete run. `PROGRAM` is this program, built with `--features parking_lot`; without it that side is left out. The exit
//! code is 1 if any side failed at any work; all other figures are written.
//!
//! The second command measures one work on one side and prints the figure. The beginning of a name is enough.

mod calls;
mod conditions;
mod cpu_time;
mod dense;
mod driven;
mod driver;
mod hold;
mod measured;
mod memory;
mod numbers;
mod ours;
mod pairs;
mod plan;
mod results;
mod side;
mod sides;
mod watch;
mod works;

use std::ffi::OsString;
use std::process::ExitCode;

use driver::Options;
use lexopt::prelude::*;

const USAGE: &str = "\
Measure this timer beside the ones that a Rust program could use instead.

    peers [--repeats 5] [--count 1000000] [--only-work WORK] [--only-side SIDE] [--output FILE] [--parking-lot PROGRAM]
    peers one WORK SIDE [--count 1000000]

The first form writes build/bench/rust.json; the second one prints a figure. src/main.rs says more, src/plan.rs has the names.
";
const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/bench/rust.json");

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything was measured.
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let (options, one) = parse()?;
    let rows = plan::rows();
    let [work, side] = match one.as_slice() {
        [] => {
            let quoted = |word: String| if word.contains(' ') { format!("'{word}'") } else { word };
            let command = std::env::args().skip(1).fold("peers".to_owned(), |line, word| line + " " + &quoted(word));
            return Ok(driver::measure_all(&options, &rows, command)?);
        }
        [one, work, side] if one == "one" => [work, side],
        _ => return Err(format!("expected nothing, or one WORK SIDE, got {one:?}").into()),
    };
    let begins = |name: &str, asked: &str| name.to_lowercase().starts_with(&asked.to_lowercase());
    let row = rows.iter().find(|row| row.works().any(|name| begins(name, work)) && begins(row.side, side));
    let row = row.ok_or_else(|| format!("no work {work:?} of a side {side:?}: see src/plan.rs"))?;
    if !row.is_of_this_program() {
        return Err(format!("{}: build this program with --features parking_lot", row.side).into());
    }
    println!("{}", row.measure(options.count));
    Ok(true)
}

fn at_least_one(value: &OsString) -> Result<usize, lexopt::Error> {
    match value.parse()? {
        0 => Err("--repeats and --count must be at least 1, got 0".into()),
        number => Ok(number),
    }
}

/// The options, and the other words of the command line.
fn parse() -> Result<(Options, Vec<String>), lexopt::Error> {
    let mut options = Options::default();
    let mut words = Vec::new();
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            Long("repeats") => options.repeats = at_least_one(&arguments.value()?)?,
            Long("count") => options.count = at_least_one(&arguments.value()?)?,
            Long("only-work") => options.only_work.push(arguments.value()?.string()?),
            Long("only-side") => options.only_side.push(arguments.value()?.string()?),
            Long("output") => options.output = Some(arguments.value()?.into()),
            Long("parking-lot") => options.parking_lot = Some(arguments.value()?.into()),
            Value(word) => words.push(word.string()?),
            _ => return Err(argument.unexpected()),
        }
    }
    if options.output.is_none() && options.only_work.is_empty() && options.only_side.is_empty() {
        options.output = Some(OUTPUT.into());
    }
    Ok((options, words))
}
