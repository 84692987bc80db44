//! Imports point one way (docs/design.md): a lower module never names an upper one.

use std::fs;
use std::path::Path;

/// What each module of the core may use of the crate; a module is named by its file or folder in `src`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("clock.rs", &[]),
    ("error.rs", &[]),
    ("panics.rs", &[]),
    ("stats.rs", &[]),
    ("sync", &[]),
    ("wheel", &[]),
    ("queue.rs", &["wheel"]),
    ("front", &["wheel"]),
    ("schedule.rs", &["front", "queue", "wheel"]),
    ("config.rs", &["clock", "error", "schedule"]),
    ("events.rs", &["wheel"]),
    ("state.rs", &["clock", "config", "error", "events", "schedule", "stats", "wheel"]),
    ("executor.rs", &["sync", "wheel"]),
    ("timer.rs", &["clock", "config", "error", "events", "executor", "schedule", "state", "stats", "sync", "wheel"]),
    ("snapshot.rs", &["schedule", "timer", "wheel"]),
    ("worker.rs", &["executor", "panics", "sync", "timer"]),
    ("reaper.rs", &["executor", "panics", "state", "timer"]),
    ("replay.rs", &["clock", "config", "error", "events", "executor", "state", "stats", "timer", "wheel"]),
    (
        "system.rs",
        &["clock", "config", "error", "executor", "reaper", "state", "stats", "sync", "timer", "wheel", "worker"],
    ),
    ("purgatory", &["error", "panics", "state", "sync", "system", "timer", "wheel"]),
];

/// The files of the purgatory, each above all that it may import; `rust` is a folder of its own.
const PURGATORY: &[&str] = &[
    "operation_types",
    "key_list",
    "watchers",
    "check_requests",
    "rounds",
    "remaining_checks",
    "purgatory_core",
    "operation_state",
    "in_progress",
    "timer_check",
    "host",
    "scheduling",
    "checking",
    "timer_runs",
    "leaving",
    "watching",
    "rust",
];
const PURGATORY_FOR_RUST: &[&str] = &["operation", "host", "purgatory"];

/// Without the model tests, which may use everything.
fn sources(path: &Path) -> Vec<String> {
    if path.file_stem().is_some_and(|name| name == "model") {
        return vec![];
    }
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    }
    vec![fs::read_to_string(path).unwrap()]
}

#[test]
fn a_module_uses_only_what_lies_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let known: Vec<_> = MAY_USE.iter().map(|(file, _)| file.trim_end_matches(".rs")).collect();
    for (file, allowed) in MAY_USE {
        let own = file.trim_end_matches(".rs");
        for source in sources(&src.join(file)) {
            for used in source.split("crate::").skip(1) {
                let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_fine = name == own || allowed.contains(&name.as_str()) || !known.contains(&name.as_str());
                assert!(is_fine, "{file} uses crate::{name}");
            }
        }
    }
}

#[test]
fn a_file_of_the_purgatory_uses_only_files_below_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/purgatory");
    check_floors(&folder, PURGATORY);
    check_floors(&folder.join("rust"), PURGATORY_FOR_RUST);
}

/// Each file of the folder is on a floor, and names only files of lower floors after `super::`.
fn check_floors(folder: &Path, floors: &[&str]) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_str().unwrap();
        let is_source =
            entry.extension().is_some_and(|extension| extension == "rs") && !["mod", "model"].contains(&name);
        assert!(!is_source || floors.contains(&name), "{} is on no floor", entry.display());
    }
    for (height, floor) in floors.iter().enumerate().filter(|(_, floor)| **floor != "rust") {
        let source = fs::read_to_string(folder.join(floor).with_extension("rs")).unwrap();
        for import in source.lines().filter(|line| line.starts_with("use super::") && !line.contains("super::super::"))
        {
            let names = import.trim_start_matches("use super::").trim_start_matches('{');
            let used: String = names.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(floors[..height].contains(&used.as_str()), "{floor} must not import {used}: {import}");
        }
    }
}

#[test]
fn every_core_module_has_a_place_in_the_order() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(src).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_known = MAY_USE.iter().any(|(file, _)| *file == name);
        let is_outside = ["lib.rs", "model.rs", "python", "schedule", "system"].contains(&name.as_str());
        assert!(is_known || is_outside, "src/{name} is not in the list above");
    }
}

#[test]
fn the_core_forbids_unsafe_code() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (name, _) in MAY_USE {
        let path = src.join(name);
        let file = if path.is_dir() { path.join("mod.rs") } else { path };
        assert!(fs::read_to_string(file).unwrap().contains("#![forbid(unsafe_code)]"), "{name}");
    }
}
