//! Reads the store by connections of its own, so the writer goes on meanwhile.
//!
//! | file | what it reads |
//! |---|---|
//! | `snapshot.rs` | one moment of a store, for the questions of the files below |
//! | `message.rs` | a message, and the search for one by its name |
//! | `messages.rs` | pages of messages: open, recurring, ended |
//! | `troubles.rs` | keys that fail, dead letters, actions on many messages, destinations |
//! | `figures.rs` | counts: of a store now, and for a report |
//! | `destinations.rs` | the named destinations, with how much waits for each |
//! | `analysis.rs` | lateness, and all messages in slices |
//! | `beside_writer.rs` | what the engine asks of its own store: counts of due messages, marks |

pub(crate) mod analysis;
pub(crate) mod beside_writer;
pub(crate) mod destinations;
mod figures;
pub(crate) mod message;
pub(crate) mod messages;
pub(crate) mod snapshot;
pub(crate) mod troubles;
