pub(crate) mod at_exit;
pub(crate) mod dispatch;
pub(crate) mod inspect;
pub(crate) mod recording;
