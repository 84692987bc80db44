//! How messages are delivered: order, retries, time-outs and bounds, the same for each destination.

#![forbid(unsafe_code)]

use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::store::Limits;

/// How to deliver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One order of all messages, not one of each key.
    pub is_global: bool,
    /// How far ahead messages are loaded into memory.
    pub horizon_ms: u64,
    /// How often a message is tried, and when.
    pub retry: Retry,
    /// How fast messages are sent; `None`: as fast as the destination takes them.
    pub rate: Option<Rate>,
    /// The most sends at a time; a sink may have fewer.
    pub concurrency: usize,
    /// A message that has been due for so long while the destination was down is a dead letter; `None`: never.
    pub give_up_after_ms: Option<u64>,
    /// How long a send may take.
    pub sink_timeout_ms: u64,
    /// How long a message is known after its outcome.
    pub keep_ids_ms: u64,
    /// What may be in memory.
    pub bounds: Bounds,
    /// Of the jitter of back-off.
    pub seed: u64,
    /// Sizes of the store's steps.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_global: false,
            horizon_ms: 10_000,
            retry: Retry::default(),
            rate: None,
            concurrency: usize::MAX,
            give_up_after_ms: None,
            sink_timeout_ms: 30_000,
            keep_ids_ms: 7 * 86_400_000,
            bounds: Bounds::default(),
            seed: 0,
            limits: Limits::default(),
        }
    }
}
