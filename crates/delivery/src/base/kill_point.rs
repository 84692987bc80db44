//! Places at which a test ends the process, like `kill -9`. In a build without tests, `kill_point` does nothing.
//!
//! Example: `TICKWHEEL_KILL_AT=3:INSERT INTO ledger` ends the process at the third place whose name contains this
//! text. Each statement of the store is a place of its own. A test may also watch each place in its own thread.

#[cfg(not(test))]
#[inline]
pub(crate) const fn kill_point(_: &str) {}

#[cfg(test)]
type Look = Box<dyn FnMut(&str)>;

#[cfg(test)]
thread_local! {
    static LOOK: std::cell::Cell<Option<Look>> = const { std::cell::Cell::new(None) };
}

/// Sets a function that runs at each place which this thread reaches from now on.
#[cfg(test)]
pub(crate) fn at_each_place(look: Option<Look>) {
    LOOK.set(look);
}

#[cfg(test)]
pub(crate) fn kill_point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static PLAN: OnceLock<Option<(AtomicU64, String)>> = OnceLock::new();
    if let Some(mut look) = LOOK.take() {
        look(name);
        LOOK.set(Some(look));
    }
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("TICKWHEEL_KILL_AT").ok()?;
        let (count, name) = text.split_once(':').expect("a count and a name");
        Some((AtomicU64::new(count.parse().expect("a count")), name.to_owned()))
    });
    if let Some((left, wanted)) = plan
        && name.contains(wanted)
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let this = rustix::process::getpid();
        rustix::process::kill_process(this, rustix::process::Signal::KILL).expect("a process may end itself");
    }
}
