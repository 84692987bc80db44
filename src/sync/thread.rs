//! Threads by name: the name that Rust knows, and the shorter one that the system shows.

use std::io;

use super::imp::{Builder, JoinHandle};

/// Linux keeps so many bytes of a thread's name.
#[cfg(all(target_os = "linux", not(tickwheel_model)))]
const LONGEST_IN_SYSTEM: usize = 15;

/// Starts a thread with this name; a NUL in it, where the system's names would end, becomes a space.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.replace('\0', " ")).spawn(body)
}

/// What the system shows of the calling thread from now on, where it is Linux: the beginning of `name`, in whole characters.
pub(crate) fn show_in_system(name: &str) {
    #[cfg(all(target_os = "linux", not(tickwheel_model)))]
    {
        let mut name = name.replace('\0', " ");
        while name.len() > LONGEST_IN_SYSTEM {
            name.pop();
        }
        if let Ok(name) = std::ffi::CString::new(name) {
            // Refused only by a sandbox; the thread then goes by the beginning of its longer name.
            let _ = rustix::thread::set_name(&name);
        }
    }
    #[cfg(not(all(target_os = "linux", not(tickwheel_model))))]
    let _ = name;
}
