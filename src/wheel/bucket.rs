//! The entries of one tick: when they expire, their earliest instant, and the list of their slots.
//!
//! A bucket is three words, and a new one is all zeros. A new level of 65,536 buckets is added while the timer's lock is
//! held: it is zeroed memory, which the system provides when it is first used. The standard library allocates an array of
//! words that way, but not an array of structs.
//!
//! Example: tasks that are due at 24.5, 25.1 and 24.9 ms on a level of tick 3 are in the bucket [24, 27): it expires at 24,
//! and its earliest instant is 24,500 us.

use super::lists::List;

/// One bucket.
pub(crate) type Bucket = [u64; 3];

/// Not armed, without entries.
pub(crate) const NEW: Bucket = [0; 3];

/// The expiration plus one; 0 while it is not armed.
const EXPIRATION: usize = 0;
/// The earliest instant that was added since it was armed, subtracted from the largest number. A cancel does not change it.
const EARLIEST: usize = 1;
/// The list of its slots.
const LIST: usize = 2;

/// When it expires; `None` while it is not armed.
#[inline]
pub(crate) fn expiration_ms(bucket: &Bucket) -> Option<u64> {
    bucket[EXPIRATION].checked_sub(1)
}

#[inline]
pub(crate) fn arm(bucket: &mut Bucket, expiration_ms: u64) {
    bucket[EXPIRATION] = expiration_ms + 1;
}

/// Its list stays, which may have memory.
pub(crate) fn disarm(bucket: &mut Bucket) {
    (bucket[EXPIRATION], bucket[EARLIEST]) = (0, 0);
}

/// No entry is due before this instant; the largest number for a new bucket.
#[inline]
pub(crate) fn earliest_us(bucket: &Bucket) -> u64 {
    u64::MAX - bucket[EARLIEST]
}

#[inline]
pub(crate) fn lower_earliest_us(bucket: &mut Bucket, due_us: u64) {
    bucket[EARLIEST] = bucket[EARLIEST].max(u64::MAX - due_us);
}

#[inline]
pub(crate) fn list(bucket: &Bucket) -> List {
    List(bucket[LIST] as u32)
}

#[inline]
pub(crate) fn set_list(bucket: &mut Bucket, list: List) {
    bucket[LIST] = list.0.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_bucket_is_not_armed_and_has_no_earliest_instant() {
        let mut bucket = NEW;
        assert_eq!((expiration_ms(&bucket), earliest_us(&bucket), list(&bucket)), (None, u64::MAX, List::default()));
        arm(&mut bucket, 0);
        for due_us in [7, 3, 5] {
            lower_earliest_us(&mut bucket, due_us);
        }
        assert_eq!((expiration_ms(&bucket), earliest_us(&bucket)), (Some(0), 3));
        disarm(&mut bucket);
        assert_eq!((expiration_ms(&bucket), earliest_us(&bucket)), (None, u64::MAX));
    }
}
