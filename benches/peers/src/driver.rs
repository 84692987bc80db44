//! Measures all works on all sides, each figure in a process of its own. The next repeat goes through them in the opposite
//! order, so that no side always has a quiet machine or a warm processor.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::conditions::Watch;
use crate::measured::Measured;
use crate::plan::{Row, WORKS};
use crate::results::{Results, spread};

pub struct Options {
    pub repeats: usize,
    pub count: usize,
    pub only_work: Vec<String>,
    pub only_side: Vec<String>,
    pub output: Option<PathBuf>,
    /// The program that measures the side with `parking_lot`'s lock.
    pub parking_lot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { repeats: 5, count: 1_000_000, only_work: vec![], only_side: vec![], output: None, parking_lot: None }
    }
}

/// Whether every figure was measured. Those that were are written in any case.
pub fn measure_all(options: &Options, rows: &[Row], command: String) -> Result<bool, String> {
    for work in &options.only_work {
        rows.iter().find(|row| row.has_figure_of(work)).ok_or_else(|| format!("no work {work:?}: see src/plan.rs"))?;
    }
    for side in &options.only_side {
        rows.iter().find(|row| row.side == side).ok_or_else(|| format!("no side {side:?}: see src/plan.rs"))?;
    }
    let is_wanted = |row: &&Row| {
        let only = &options.only_work;
        (row.is_of_this_program() || options.parking_lot.is_some())
            && (only.is_empty() || only.iter().any(|work| row.has_figure_of(work)))
            && (options.only_side.is_empty() || options.only_side.iter().any(|side| row.side == side))
    };
    let rows = rows.iter().filter(is_wanted).map(|row| (row, Vec::new())).collect();
    let mut results = Results { rows, count: options.count, repeats: options.repeats };
    let mut failed = Vec::new();
    let mut watch = Watch::start();
    for repeat in 1..=options.repeats {
        for (row, measured) in &mut results.rows {
            watch.calibrate();
            eprint!("{repeat}/{} {}: {}", options.repeats, row.work.name, row.side);
            match in_a_process(row, options) {
                Ok(one) => {
                    eprint!(" {:.1} {}", one.value, row.work.unit);
                    measured.push(one);
                    eprintln!("; {}", spread(measured).trim_start());
                }
                Err(reason) => {
                    eprintln!(" FAILED");
                    failed.push(format!("{}: {}, repeat {repeat}: {reason}", row.work.name, row.side));
                }
            }
        }
        results.rows.reverse();
    }
    if options.repeats % 2 == 1 {
        results.rows.reverse();
    }
    print_spreads(&results);
    let conditions = watch.noted();
    println!("{conditions}");
    if let Some(path) = &options.output {
        results.write(path, command, conditions).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for failure in &failed {
        eprintln!("FAILED {failure}");
    }
    Ok(failed.is_empty())
}

/// The output of `peers one`. Its error messages have gone to stderr.
fn in_a_process(row: &Row, options: &Options) -> Result<Measured, String> {
    let own = || std::env::current_exe().map_err(|error| error.to_string());
    let other = options.parking_lot.clone().filter(|_| !row.is_of_this_program());
    let program = other.map_or_else(own, Ok)?;
    let mut command = Command::new(program);
    command.args(["one", row.work.name, row.side, "--count", &options.count.to_string()]);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !done.status.success() {
        return Err(done.status.to_string());
    }
    Measured::read(&String::from_utf8_lossy(&done.stdout))
}

fn print_spreads(results: &Results) {
    for work in &WORKS {
        for (row, measured) in &results.rows {
            if row.work == work && !measured.is_empty() {
                println!("{:38} {:30} {} ({})", work.name, row.side, spread(measured), work.unit);
            }
        }
    }
}
