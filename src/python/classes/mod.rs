pub(crate) mod manual;
pub(crate) mod purgatory;
pub(crate) mod system;
