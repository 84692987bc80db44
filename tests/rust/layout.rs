//! Imports go one way (docs/internals/design.md): a lower module never names an upper one.

use std::fs;
use std::path::Path;

use crate::exported::{check_public_items, files, hidden, names};

/// What each module of the core may use of the crate: modules before it in this list. A module is named by its file or folder
/// in `src`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error.rs", &[]),
    ("lists", &[]),
    ("panics.rs", &[]),
    ("slack.rs", &[]),
    ("lead.rs", &["slack"]),
    ("stats.rs", &[]),
    ("sync", &[]),
    ("wheel", &["lists"]),
    ("when.rs", &[]),
    ("clock.rs", &["error", "when"]),
    ("wake_signal.rs", &["clock", "error", "sync"]),
    ("every.rs", &["clock", "error", "when"]),
    ("executor.rs", &["sync", "wheel"]),
    ("queue.rs", &["wheel"]),
    ("front", &["lists", "wheel"]),
    ("schedule.rs", &["front", "queue", "wheel"]),
    ("config.rs", &["clock", "error", "schedule", "slack"]),
    ("events.rs", &["wheel"]),
    ("state.rs", &["clock", "config", "error", "events", "lead", "schedule", "slack", "stats", "wheel", "when"]),
    ("single_threaded.rs", &["config", "error", "schedule", "state", "wheel", "when"]),
    (
        "timer",
        &[
            "clock",
            "config",
            "error",
            "events",
            "executor",
            "lead",
            "schedule",
            "slack",
            "state",
            "stats",
            "sync",
            "wake_signal",
            "wheel",
            "when",
        ],
    ),
    ("occupancy.rs", &["schedule", "timer", "wheel"]),
    ("snapshot.rs", &["occupancy", "schedule", "timer", "wheel"]),
    ("reaper.rs", &["executor", "lead", "panics", "sync", "timer"]),
    ("worker.rs", &["executor", "panics", "sync", "timer"]),
    (
        "replay.rs",
        &["clock", "config", "error", "events", "executor", "lead", "state", "stats", "timer", "wheel", "when"],
    ),
    (
        "system",
        &[
            "clock", "config", "error", "every", "executor", "panics", "state", "stats", "sync", "timer", "wheel",
            "when", "worker",
        ],
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
    "postponed_checks",
    "checking",
    "timer_check_run",
    "leaving",
    "watching",
    "rust",
];
const PURGATORY_FOR_RUST: &[&str] = &["operation", "host", "purgatory"];

fn sources(path: &Path) -> Vec<String> {
    files(path).iter().map(|file| fs::read_to_string(file).unwrap()).collect()
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
        let is_source = entry.extension().is_some_and(|extension| extension == "rs") && name != "mod";
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
        let is_outside = ["every", "internal.rs", "lib.rs", "model.rs", "schedule", "wake_signal", "worker"]
            .contains(&name.as_str());
        assert!(is_known || is_outside, "src/{name} is not in the list above");
    }
}

/// The compiler holds the two crates to it; the lint of the workspace denies it in the bindings, but for these files.
#[test]
fn unsafe_code_is_in_these_files_of_the_bindings_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for crate_root in ["src/lib.rs", "crates/delivery/src/lib.rs"] {
        let text = fs::read_to_string(root.join(crate_root)).unwrap();
        assert!(text.contains("\n#![forbid(unsafe_code)]\n"), "{crate_root}");
    }
    let bindings = root.join("crates/python/src");
    let mut allowed: Vec<_> = files(&bindings)
        .into_iter()
        .filter(|file| fs::read_to_string(file).unwrap().contains("[expect(unsafe_code"))
        .map(|file| file.strip_prefix(&bindings).unwrap().to_str().unwrap().to_owned())
        .collect();
    allowed.sort();
    let known = [
        "delivery/engine/observer.rs",
        "tools/arrow.rs",
        "tools/fork.rs",
        "tools/gil_cell.rs",
        "tools/interpreters.rs",
        "values/function_parts.rs",
    ];
    assert_eq!(allowed, known);
}

#[test]
fn an_example_shows_every_public_function_and_no_docs_a_tag_of_a_rule() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let count: usize = files(&src).iter().map(|file| check_public_items(file)).sum();
    assert!(count > 80, "{count} public functions were found");
}

/// What the bindings use of the inside. Another name here is one more that an internal change may break.
#[test]
fn the_bindings_use_these_names_of_the_inside_alone() {
    let known = "ArmedDeadline Cause Completer Due Host JoinHandle ListId Locking MAX_YIELDS Mutex MutexGuard Occurrences \
                 OperationKind OperationState OperationTypes PlainCondvar PlainGuard PlainMutex Purgatory Receiver \
                 RequestedChecks Room Rounds STEP Schedule Sender ShortList State TimerCheck TryRecvError TryResult Waiting \
                 WatchError WatchResult cancel expire force_complete is_idle set_system_thread_name shrink spawn \
                 sync_deadline unbounded yield_now";
    assert_eq!(names("internal.rs").join(" "), known);
    let methods = hidden(&files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))).join(" ");
    let known = "bulk drain_unreleased finish_locked internal notify_if_idle now_down_and_up_us state unlock_after_removal \
                 wait_empty wait_for_work wake_driver_if";
    assert_eq!(methods, known, "hidden methods and fields of public types");
}

/// `cargo test` alone tests the crate in whose folder it is called: here the timer.
#[test]
fn cargo_test_is_for_the_timer_alone_and_cargo_test_workspace_for_all_three_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("crates").exists() {
        return; // this is the archive of the crate
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("members = [\"crates/*\"]") && !manifest.contains("default-members"));
    for section in manifest.split("\n[").filter(|section| section.starts_with("dependencies]")) {
        assert!(
            section.lines().skip(1).filter(|line| line.contains('=') && !line.contains("optional")).count() <= 4,
            "the timer has few dependencies"
        );
    }
}
