//! What a crate of this workspace exports, as its source says.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of all `pub use` of a file of the crate, in order.
pub(crate) fn names(file: &str) -> Vec<String> {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
    let uses = source.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = uses.flat_map(|tree| tree.split("::").last().unwrap().trim_matches(['{', '}']).split(','));
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names
}

/// The items of these files that are public for the bindings alone, in order: functions, fields, modules.
pub(crate) fn hidden(files: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let source = fs::read_to_string(file).unwrap();
        let lines: Vec<_> = source.lines().map(str::trim).collect();
        for at in (0..lines.len()).filter(|at| lines[*at].starts_with("#[doc(hidden)]")) {
            let item = lines[at..].iter().find(|line| !line.starts_with("#[")).unwrap();
            let words = item.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            let mut names = words.filter(|word| !["pub", "fn", "const", "mod", "struct", "unsafe"].contains(word));
            found.push(names.next().unwrap().to_owned());
        }
    }
    found.sort_unstable();
    found
}

/// Fails for a public function that no example of this file shows, and for a tag of a rule in the docs of a public item; returns how
/// many functions there are. What `internal` alone exports is not for users: the functions of other types, and those that
/// `lib.rs` does not name.
pub(crate) fn check_public_items(file: &Path) -> usize {
    let source = fs::read_to_string(file).unwrap();
    let (exported, mut count, mut is_shown) = (names("lib.rs"), 0, false);
    let lines: Vec<_> = source.lines().collect();
    let examples = examples(&source);
    let is_of_it = |line: &&str| line.starts_with("///") || line.starts_with("#[") || line.starts_with(")]");
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("impl") || line.starts_with("pub ") {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_exported = |word: &str| exported.iter().any(|name| name == word);
            is_shown = if line.starts_with("pub fn ") {
                words.nth(2).is_some_and(is_exported)
            } else {
                words.any(is_exported)
            };
        }
        if is_shown && line.trim_start().starts_with("pub ") {
            let above: Vec<_> = lines[..at].iter().rev().map(|line| line.trim()).take_while(is_of_it).collect();
            let is_hidden = above.contains(&"#[doc(hidden)]");
            let is_function = line.trim_start().starts_with("pub fn ") && !is_hidden;
            count += usize::from(is_function);
            let name = line.trim_start().trim_start_matches("pub fn ").split(['(', '<']).next().unwrap();
            assert!(!is_function || examples.contains(name), "{}: {line} is in no example", file.display());
            assert!(is_hidden || !above.iter().any(|line| has_tag(line)), "{}: {line} names a rule", file.display());
        }
    }
    count
}

/// The words of all examples in the docs of a file. A doctest runs each.
fn examples(source: &str) -> HashSet<&str> {
    let docs = source.lines().filter_map(|line| line.trim_start().strip_prefix("///"));
    let (mut is_inside, mut words) = (false, HashSet::new());
    for line in docs {
        if line.trim_start().starts_with("```") {
            is_inside = !is_inside;
        } else if is_inside {
            words.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        }
    }
    words
}

/// Whether it names a rule, as in `D6`.
fn has_tag(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    words.any(|word| {
        word.len() > 1 && word.starts_with(['T', 'P', 'D']) && word[1..].bytes().all(|b| b.is_ascii_digit())
    })
}

/// The files of a module, without its tests.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    if path.file_stem().is_some_and(|name| ["model", "scenarios", "tests"].contains(&name.to_str().unwrap())) {
        return vec![];
    }
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| files(&entry.unwrap().path())).collect();
    }
    vec![path.to_owned()]
}
