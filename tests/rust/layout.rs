//! Imports go one way (docs/design.md): a lower module never names an upper one.

use std::fs;
use std::path::Path;

/// Which modules of the crate each module of the core may use. A module has the name of its file or folder in `src`.
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
    ("timer.rs", &["clock", "config", "error", "events", "executor", "schedule", "state", "stats", "sync", "wheel"]),
    ("snapshot.rs", &["schedule", "timer", "wheel"]),
    ("executor.rs", &["panics", "sync", "timer", "wheel"]),
    ("reaper.rs", &["executor", "panics", "state", "timer"]),
    ("replay.rs", &["clock", "config", "error", "events", "executor", "state", "stats", "timer", "wheel"]),
    ("system.rs", &["clock", "config", "error", "executor", "reaper", "state", "stats", "sync", "timer", "wheel"]),
    ("purgatory", &["error", "panics", "state", "sync", "system", "timer", "wheel"]),
];

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
    for (file, allowed) in MAY_USE {
        let own = file.trim_end_matches(".rs");
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
