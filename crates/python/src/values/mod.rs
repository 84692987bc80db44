//! Plain values of a timer and of a purgatory: what is due, where callbacks run and how they are called, keys.

pub(crate) mod callback_scope;
pub(crate) mod callback_target;
pub(crate) mod coroutine_functions;
pub(crate) mod coroutines;
pub(crate) mod due_line;
pub(crate) mod function_parts;
pub(crate) mod key_collection;
pub(crate) mod keys;
pub(crate) mod logged_failures;
pub(crate) mod on_error;
pub(crate) mod report_failure;
pub(crate) mod turnstile;
