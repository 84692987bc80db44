pub(crate) mod budget;
pub(crate) mod timer;
pub(crate) mod worker;
