//! The results: a record for each work and side, in the format that `benches/report/results.py` reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::measured::Measured;
use crate::plan::{Row, WORKS};

#[derive(Serialize)]
struct File {
    suite: &'static str,
    command: String,
    versions: BTreeMap<&'static str, String>,
    conditions: Conditions,
    repeats: usize,
    records: Vec<Record>,
}

#[derive(Serialize)]
struct Record {
    work: &'static str,
    side: &'static str,
    unit: &'static str,
    better: &'static str,
    count: usize,
    values: Vec<f64>,
    note: String,
}

/// The rows with the figures of each repeat. A row without figures is left out.
pub struct Results<'a> {
    pub rows: Vec<(&'a Row, Vec<Measured>)>,
    /// The number of timers in the command.
    pub count: usize,
    pub repeats: usize,
}

impl Results<'_> {
    pub fn write(&self, path: &Path, command: String, conditions: Conditions) -> std::io::Result<()> {
        let records = WORKS.iter().flat_map(|work| self.records_of(work.name)).collect();
        let file = File { suite: "rust", command, versions: versions(), conditions, repeats: self.repeats, records };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, serde_json::to_string_pretty(&file)? + "\n")
    }

    fn records_of(&self, work: &'static str) -> impl Iterator<Item = Record> {
        let rows = self.rows.iter().filter(move |(row, measured)| row.has_figure_of(work) && !measured.is_empty());
        rows.map(move |(row, measured)| Record {
            work,
            side: row.side,
            unit: row.work.unit,
            better: "lower",
            count: row.count(self.count),
            values: measured.iter().map(|measured| measured.value).collect(),
            note: median(measured).note.clone(),
        })
    }
}

/// The median repeat: its note is about the figure on the page.
pub fn median(measured: &[Measured]) -> &Measured {
    let mut sorted: Vec<_> = measured.iter().collect();
    sorted.sort_by(|one, other| one.value.total_cmp(&other.value));
    sorted[sorted.len() / 2]
}

/// Lowest, median and highest of the repeats, and how far they lie apart.
pub fn spread(measured: &[Measured]) -> String {
    let mut sorted: Vec<_> = measured.iter().map(|measured| measured.value).collect();
    sorted.sort_by(f64::total_cmp);
    let (lowest, median, highest) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    let percent = if median > 0.0 { 100.0 * (highest - lowest) / median } else { 0.0 };
    format!("{lowest:10.1} / {median:.1} / {highest:.1}, spread {percent:.0} %")
}

/// The versions of the compiler, and of each timer that is a package.
fn versions() -> BTreeMap<&'static str, String> {
    let lock = include_str!("../Cargo.lock");
    let version = |package| {
        let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \"")).expect("a dependency");
        after.split('"').next().unwrap_or_default().to_owned()
    };
    let packages = ["tickwheel", "tokio", "tokio-util", "nexus-timer", "slab-wheel", "hierarchical_hash_wheel_timer"];
    let mut versions: BTreeMap<_, _> = packages.into_iter().map(|package| (package, version(package))).collect();
    if let Ok(said) = Command::new("rustc").arg("--version").output() {
        let words = String::from_utf8_lossy(&said.stdout);
        versions.insert("rustc", words.split(' ').nth(1).unwrap_or_default().to_owned());
    }
    versions
}
