//! Destinations that are Python objects, functions or coroutine functions.

pub(crate) mod coroutine_sink;
pub(crate) mod destination;
pub(crate) mod function;
pub(crate) mod sink;
