//! Whether the destination is down, or refuses a message of its own (rule D6).
//!
//! - It is down at once where nothing can be told to it, and once its last five sends, of different messages, all ended
//!   without an answer that is about the message: a time-out, 503 and the like.
//! - While it is down, one message after the other is sent to find out whether it is up again, by back-off or when the
//!   destination says; no attempt is counted.
//! - Any answer that is about a message shows that it is up.

#![forbid(unsafe_code)]

use fastrand::Rng;

use super::lanes::Slot;

/// How many sends in a row, of different messages, show that the destination is down.
const DOWN_AFTER: usize = 5;
const FIRST_PROBE_MS: u64 = 250;
const LONGEST_PROBE_MS: u64 = 30_000;

/// Up, or down since when, and why.
#[derive(Debug, Default)]
pub(super) struct Outage {
    down: Option<Down>,
    /// The messages of the last sends, all of which ended without an answer about the message.
    unanswered: Vec<(Slot, i64)>,
}

#[derive(Debug)]
struct Down {
    since_us: u64,
    reason: String,
    probes: u32,
    probe: Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Its time has not come.
    Waiting,
    /// The next message that can be sent is the probe.
    Due,
    Sent,
}

impl Outage {
    pub(super) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Since when, on the timer's clock, and why.
    pub(super) fn down(&self) -> Option<(u64, &str)> {
        self.down.as_ref().map(|down| (down.since_us, down.reason.as_str()))
    }

    /// Whether a message may be sent: any while it is up, one as a probe otherwise.
    pub(super) fn may_send(&self) -> bool {
        self.down.as_ref().is_none_or(|down| down.probe == Probe::Due)
    }

    pub(super) fn probe_is_due(&mut self) {
        if let Some(down) = &mut self.down
            && down.probe == Probe::Waiting
        {
            down.probe = Probe::Due;
        }
    }

    pub(super) fn probe_is_sent(&mut self) {
        if let Some(down) = &mut self.down {
            down.probe = Probe::Sent;
        }
    }

    /// An answer about a message came. Returns since when it was down, if it was.
    pub(super) fn answered(&mut self) -> Option<u64> {
        self.unanswered.clear();
        self.down.take().map(|down| down.since_us)
    }

    /// A send ended without an answer about the message. Returns whether that makes five.
    pub(super) fn unanswered(&mut self, slot: Slot, seq: i64) -> bool {
        if !self.unanswered.contains(&(slot, seq)) {
            self.unanswered.push((slot, seq));
        }
        self.unanswered.len() >= DOWN_AFTER
    }

    /// It is down from now on. Returns the messages of the sends that showed it, whose attempts do not count.
    pub(super) fn begins(&mut self, now_us: u64, reason: &str) -> Vec<(Slot, i64)> {
        self.down = Some(Down { since_us: now_us, reason: reason.to_owned(), probes: 0, probe: Probe::Sent });
        std::mem::take(&mut self.unanswered)
    }

    /// The next probe comes after this time, in milliseconds.
    pub(super) fn next_probe_ms(&mut self, retry_after_ms: Option<u64>, random: &mut Rng) -> u64 {
        let Some(down) = &mut self.down else { return 0 };
        let whole_ms = (FIRST_PROBE_MS << down.probes.min(20)).min(LONGEST_PROBE_MS);
        down.probes += 1;
        down.probe = Probe::Waiting;
        retry_after_ms.unwrap_or(whole_ms - random.u64(0..=whole_ms / 4))
    }

    /// The probe was not sent after all.
    pub(super) fn probe_came_back(&mut self) {
        if let Some(down) = &mut self.down {
            down.probe = Probe::Due;
        }
    }

    pub(super) fn waits_for_probe(&self) -> bool {
        self.down.as_ref().is_some_and(|down| down.probe == Probe::Sent)
    }
}
