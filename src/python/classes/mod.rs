//! The other classes that Python sees: two timers and the purgatory.

pub(crate) mod manual;
pub(crate) mod purgatory;
pub(crate) mod purgatory_object;
pub(crate) mod system;
