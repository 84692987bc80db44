//! What the wheel answers: which bucket a reminder is in now, and whether that bucket must be armed.

/// Names a bucket in the bucket queue, or one that must enter it. Levels count from 1, buckets from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketRef {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) bucket: u32,
}

/// Where [`crate::wheel::Wheel::remind`] put a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// In a bucket that is in the bucket queue already.
    AlreadyArmed(BucketRef),
    /// In a bucket that the caller puts into the bucket queue.
    NewlyArmed(BucketRef),
}
