//! Foreign code that panics: what it costs is itself, and nothing around it (T13).

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code; whether it returned. The panic hook has reported a panic, so its payload is dropped here.
///
/// What the code shares with others may be half changed after a panic; the caller knows that it is foreign.
pub(crate) fn contain(call: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return true };
    // Dropping the payload may panic. The second payload is leaked, because dropping it could panic again.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use super::*;

    /// Panics as it is dropped, with a payload that does the same.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            resume_unwind(Box::new(Bomb)); // without the panic hook's message
        }
    }

    #[test]
    fn a_payload_that_panics_as_it_is_dropped_goes_no_further__t13() {
        assert!(contain(|| ()));
        assert!(!contain(|| resume_unwind(Box::new(Bomb))));
    }
}
