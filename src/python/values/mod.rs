pub(crate) mod coroutine_functions;
pub(crate) mod coroutines;
pub(crate) mod keys;
pub(crate) mod on_error;
pub(crate) mod report;
pub(crate) mod turnstile;
