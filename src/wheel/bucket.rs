//! The entries of one tick: when they expire, and the list of their reminders.
//!
//! A bucket is two words, and a new one is all zeros. A new level of 65,536 buckets is added while the timer's lock is
//! held: it is zeroed memory, which the system provides when it is first used. The standard library allocates an array of
//! words that way, but not an array of structs.
//!
//! Example: tasks that are due at 24.5, 25.1 and 24.9 ms on a level of tick 3 are in the bucket [24, 27), which expires at 24.

use crate::lists::List;

/// One bucket.
pub(crate) type Bucket = [u64; 2];

/// Not armed, without reminders.
pub(crate) const NEW: Bucket = [0; 2];

/// The expiration plus one; 0 while it is not armed.
const EXPIRATION: usize = 0;
/// The list of its reminders.
const LIST: usize = 1;

/// When it expires; `None` while it is not armed.
#[inline]
pub(crate) fn expiration_ms(bucket: &Bucket) -> Option<u64> {
    bucket[EXPIRATION].checked_sub(1)
}

#[inline]
pub(super) fn arm(bucket: &mut Bucket, expiration_ms: u64) {
    bucket[EXPIRATION] = expiration_ms + 1;
}

#[inline]
pub(super) fn list(bucket: &Bucket) -> List {
    List(bucket[LIST] as u32)
}

#[inline]
pub(super) fn set_list(bucket: &mut Bucket, list: List) {
    bucket[LIST] = list.0.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_bucket_is_not_armed_and_has_no_list() {
        let mut bucket = NEW;
        assert_eq!((expiration_ms(&bucket), list(&bucket)), (None, List::default()));
        arm(&mut bucket, 0);
        assert_eq!(expiration_ms(&bucket), Some(0));
    }
}
