//! The small tables: attempts of messages; values by name; records beside messages; requests that outlive a restart.

pub(crate) mod attempts;
pub(crate) mod destinations;
pub(crate) mod events;
pub(crate) mod meta;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod tenants;
