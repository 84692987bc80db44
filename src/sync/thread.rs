//! Named threads: the name in Rust, and the shorter name that the system shows; and how exactly a thread sleeps.

use std::io;

use super::imp::{Builder, JoinHandle};

/// The bytes of a thread's name that Linux keeps.
#[cfg(all(target_os = "linux", not(tickwheel_model)))]
const MAX_SYSTEM_NAME_BYTES: usize = 15;

/// Starts a thread with this name. A NUL in it, which would end the system's name, becomes a space.
///
/// # Errors
/// The system gives no thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.replace('\0', " ")).spawn(body)
}

/// Sets the name of the calling thread that Linux shows: the beginning of `name`, in whole characters.
pub fn set_system_thread_name(name: &str) {
    #[cfg(all(target_os = "linux", not(tickwheel_model)))]
    {
        let mut name = name.replace('\0', " ");
        while name.len() > MAX_SYSTEM_NAME_BYTES {
            name.pop();
        }
        if let Ok(name) = std::ffi::CString::new(name) {
            // Refused only by a sandbox; then the system shows the beginning of the longer name.
            let _ = rustix::thread::set_name(&name);
        }
    }
    #[cfg(not(all(target_os = "linux", not(tickwheel_model))))]
    let _ = name;
}

/// Linux rounds a sleep up by 50 µs unless told otherwise; without this the median lateness doubles. The guard gives the thread
/// its default back: what a callback starts would inherit it, other programs too.
pub(crate) struct MinimalTimerSlack(());

impl MinimalTimerSlack {
    pub(crate) fn set() -> Self {
        set_timer_slack(1);
        Self(())
    }
}

impl Drop for MinimalTimerSlack {
    fn drop(&mut self) {
        set_timer_slack(0);
    }
}

/// Of this thread; 0 for its default.
#[cfg_attr(not(all(target_os = "linux", not(tickwheel_model))), expect(unused_variables))]
fn set_timer_slack(slack_ns: u64) {
    #[cfg(all(target_os = "linux", not(tickwheel_model)))]
    {
        // Refused only by a sandbox; the timer is then as late as any other thread.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(slack_ns));
    }
}
