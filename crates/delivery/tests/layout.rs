//! The names of this crate: those for a Rust program, and those for the bindings.

use std::path::Path;

use exported::{check_public_items, files, hidden, names};

#[path = "../../../tests/rust/exported.rs"]
mod exported;

/// What a Rust program gets. Another name in this list is a promise to keep it.
#[test]
fn delivery_shows_these_names_alone() {
    let known = "Allowed Answer BadRecord Deliverer Delivery DeliveryError Destination Event KeyEvent Letter Message Missed NamedBody NamedSettings Observer Part Proxy Rate \
                 Receipt Replicate Replication Reply ReplySink Retry Role Settings SharedWebhook Sink StoreError Summary SyncFn TenantSettings Verdict Verdicts Webhook";
    assert_eq!(names("lib.rs").join(" "), known);
}

/// What the bindings use of the inside. Another name here is one more that an internal change may break.
#[test]
fn the_bindings_use_these_names_of_the_inside_alone() {
    let known = "ANSWERS ActionKind ActionSeen Answers AroundFn ArrowRows ArrowStream BOUNDS_US Block Body Bounds CAUSES Cancel \
                 Checked Columns Completion Csv DestinationCounts DestinationMeasures DestinationSeen Digest DueClock EVENT \
                 Engine Extras FUNCTION_THREADS Failing Fields Filter Histogram Incoming Item Kept LONGEST_REASON LineWriter \
                 MAX_DUE_MS MAX_PAYLOAD MISSED MOST_FUNCTION_THREADS MOST_PAUSED_KEYS Ndjson OPERATIONS OTHER_CONTENT OpenSink \
                 Opened Origin Other Outcome Ownership PARTITIONS PageOf Parsed PartKind Payload Progress REMEMBER_MS Request \
                 Reschedule Running SETTINGS SPARE_FUNCTION_THREADS Schema Seen Snapshot Stop \
                 SystemWallTime TZ TenantChange TenantSeen Ticket UNTIL_EVENT Value WallTime backup batches beside_webhooks check check_destination check_name \
                 check_tenant check_traceparent checked checked_destination checked_pause_end checked_tenant compact cut due_from_digits_or_text has_dictionaries \
                 is_open_here not_json on_one_line owners_of read_hand_off record_as_given restore rfc_3339 store_is_open with_commas \
                 write_stream write_text";
    assert_eq!(names("internal.rs").join(" "), known);
    let methods = hidden(&files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))).join(" ");
    let known = "around body bounds delay_ms due_ms from_parts from_parts internal into_opener limits named no_thread pair seed wait";
    assert_eq!(methods, known, "hidden methods and fields of public types");
}

#[test]
fn an_example_shows_every_public_function_and_no_docs_a_tag_of_a_rule() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let count: usize = files(&src).iter().map(|file| check_public_items(file)).sum();
    assert!(count > 40, "{count} public functions were found");
}
