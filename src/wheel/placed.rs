//! What the wheel answers: which bucket an entry is in now, and whether that bucket must be armed.

/// Names a bucket in the bucket queue, or one that must enter it. Levels count from 1, buckets from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketRef {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) bucket: u32,
}

/// Where [`crate::wheel::Wheel::place`] placed an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// In no bucket: it is due in the current tick, and the caller puts it into the front.
    ForFront,
    /// In a bucket that is in the bucket queue already.
    AlreadyArmed(BucketRef),
    /// In a bucket that the caller puts into the bucket queue.
    NewlyArmed(BucketRef),
}
