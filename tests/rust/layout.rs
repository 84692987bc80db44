//! Imports go one way (docs/design.md): a lower module never names an upper one.

use std::fs;
use std::path::Path;

/// What each module of the core may use of the crate: modules before it in this list. A module is named by its file or folder
/// in `src`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error.rs", &[]),
    ("lead.rs", &[]),
    ("panics.rs", &[]),
    ("stats.rs", &[]),
    ("sync", &[]),
    ("wheel", &[]),
    ("when.rs", &[]),
    ("clock.rs", &["when"]),
    ("every.rs", &["clock", "error", "when"]),
    ("executor.rs", &["sync", "wheel"]),
    ("queue.rs", &["wheel"]),
    ("front", &["wheel"]),
    ("schedule.rs", &["front", "queue", "wheel"]),
    ("config.rs", &["clock", "error", "schedule"]),
    ("events.rs", &["wheel"]),
    ("state.rs", &["clock", "config", "error", "events", "lead", "schedule", "stats", "wheel", "when"]),
    ("single_threaded.rs", &["config", "error", "schedule", "state", "wheel", "when"]),
    (
        "timer",
        &[
            "clock", "config", "error", "events", "executor", "lead", "schedule", "state", "stats", "sync", "wheel",
            "when",
        ],
    ),
    ("snapshot.rs", &["schedule", "timer", "wheel"]),
    ("occupancy.rs", &["schedule", "snapshot", "timer", "wheel"]),
    ("reaper.rs", &["executor", "lead", "panics", "sync", "timer"]),
    ("worker.rs", &["executor", "panics", "sync", "timer"]),
    (
        "replay.rs",
        &[
            "clock",
            "config",
            "error",
            "events",
            "executor",
            "lead",
            "occupancy",
            "state",
            "stats",
            "timer",
            "wheel",
            "when",
        ],
    ),
    (
        "system",
        &[
            "clock", "config", "error", "every", "executor", "panics", "state", "stats", "sync", "timer", "wheel",
            "when", "worker",
        ],
    ),
    ("purgatory", &["error", "panics", "state", "sync", "system", "timer", "wheel"]),
    ("delivery", &["clock", "config", "error", "executor", "panics", "sync", "timer", "wheel", "when"]),
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
    "postponed_checks",
    "checking",
    "timer_check_run",
    "leaving",
    "watching",
    "rust",
];
const PURGATORY_FOR_RUST: &[&str] = &["operation", "host", "purgatory"];

/// The files of a module, without its tests.
fn sources(path: &Path) -> Vec<String> {
    if path.file_stem().is_some_and(|name| ["model", "scenarios", "tests"].contains(&name.to_str().unwrap())) {
        return vec![];
    }
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    }
    vec![fs::read_to_string(path).unwrap()]
}

#[test]
fn a_module_uses_only_lower_modules() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let known: Vec<_> = MAY_USE.iter().map(|(file, _)| file.trim_end_matches(".rs")).collect();
    for (number, (file, allowed)) in MAY_USE.iter().enumerate() {
        let own = file.trim_end_matches(".rs");
        assert!(allowed.iter().all(|name| known[..number].contains(name)), "{file} may use a module after it");
        let folder = Some(src.join(own)).filter(|folder| own != *file && folder.is_dir());
        for source in [src.join(file)].into_iter().chain(folder).flat_map(|path| sources(&path)) {
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
        let is_outside = ["lib.rs", "model.rs", "python", "schedule", "worker"].contains(&name.as_str());
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

/// What docs.rs shows of these files: the public items, each with the lines before it.
fn public_items(source: &str) -> Vec<(String, Vec<&str>)> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let is_of_it = |line: &&str| line.starts_with("///") || line.starts_with("#[") || line.starts_with(")]");
    let items = lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub "));
    items
        .map(|(at, line)| ((*line).to_owned(), lines[..at].iter().rev().copied().take_while(is_of_it).collect()))
        .collect()
}

/// Whether it names a rule, as in `D6`.
fn has_tag(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    words.any(|word| {
        word.len() > 1 && word.starts_with(['T', 'P', 'D']) && word[1..].bytes().all(|b| b.is_ascii_digit())
    })
}

#[test]
fn every_public_function_shows_an_example_and_no_tag_of_a_rule() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for (name, _) in MAY_USE {
        for source in sources(&src.join(name)) {
            for (item, doc) in public_items(&source) {
                let is_function = item.starts_with("pub fn ");
                count += usize::from(is_function);
                assert!(!is_function || doc.contains(&"/// ```"), "{name}: {item} has no example");
                assert!(!doc.iter().any(|line| has_tag(line)), "{name}: {item} names a rule");
            }
        }
    }
    assert!(count > 100, "{count} public functions were found");
}

/// What a Rust program gets of delivery. Another name in this list is a promise to keep it.
#[test]
fn delivery_shows_these_names_alone() {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/delivery/mod.rs")).unwrap();
    let exported = source.lines().filter_map(|line| line.strip_prefix("pub use ")?.split("::").nth(1));
    let mut names: Vec<&str> = exported
        .flat_map(|names| names.trim_matches(['{', '}', ';']).split(", "))
        .map(|it| it.trim_end_matches("};"))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "Answer",
            "BadRecord",
            "Deliverer",
            "Delivery",
            "DeliveryError",
            "Destination",
            "Event",
            "Letter",
            "Message",
            "Missed",
            "Observer",
            "OpenOptions",
            "Receipt",
            "Reply",
            "SharedWebhook",
            "Sink",
            "StoreError",
            "Summary",
            "SyncFn",
            "Verdict",
            "Verdicts",
            "Webhook",
        ]
    );
}
