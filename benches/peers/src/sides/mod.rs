//! One file for each timer.

pub mod binary_heap;
pub mod btree_map;
pub mod delay_queue;
pub mod hash_wheel;
pub mod nexus;
pub mod single_threaded;
pub mod slab_wheel;
pub mod tickwheel;
pub mod tokio_sleep;
