pub(crate) mod timer;
pub(crate) mod worker;
