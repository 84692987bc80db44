//! Readers of NDJSON, CSV and Arrow. Each turns bytes into messages, by the schema in `message/fields.rs`.

pub(crate) mod arrow_json;
pub(crate) mod arrow_rows;
pub(crate) mod arrow_stream;
pub(crate) mod arrow_values;
pub(crate) mod csv_rows;
pub(crate) mod csv_split;
pub(crate) mod hand_off;
pub(crate) mod lines;
pub(crate) mod ndjson;
