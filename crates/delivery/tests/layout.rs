//! The names of this crate: those for a Rust program, and those for the bindings.

use std::path::Path;

use exported::{check_public_items, files, names};

#[path = "../../../tests/rust/exported.rs"]
mod exported;

/// What a Rust program gets. Another name in this list is a promise to keep it.
#[test]
fn delivery_shows_these_names_alone() {
    let known = "Answer BadRecord Deliverer Delivery DeliveryError Destination Event Letter Message Missed Observer OpenOptions \
                 Receipt Reply SharedWebhook Sink StoreError Summary SyncFn Verdict Verdicts Webhook";
    assert_eq!(names("lib.rs").join(" "), known);
}

/// What the bindings use of the inside. Another name here is one more that an internal change may break.
#[test]
fn the_bindings_use_these_names_of_the_inside_alone() {
    let known = "";
    assert_eq!(names("internal.rs").join(" "), known);
}

#[test]
fn every_public_function_shows_an_example_and_no_tag_of_a_rule() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let count: usize = files(&src).iter().map(|file| check_public_items(file)).sum();
    assert!(count > 40, "{count} public functions were found");
}
