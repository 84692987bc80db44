//! Whether the destination is down, or refuses a message of its own (rule D6).
//!
//! - It is down at once where nothing can be told to it, and once its last five sends, of different messages, all ended
//!   without an answer that is about the message: a time-out, 503 and the like. A message among them that was sent more than
//!   once counts once.
//! - While it is down, one message after the other is sent to find out whether it is up again, by back-off or when the
//!   destination says; no attempt is counted. Those counted since the last answer are given back.
//! - An answer that is about a message shows that it is up. While it is down, only the answer to a probe does: what was sent
//!   before may still be answered by a destination that takes nothing new.

use fastrand::Rng;

use super::lanes::Slot;

/// How many sends in a row, of different messages, show that the destination is down.
const DOWN_AFTER: usize = 5;
const FIRST_PROBE_MS: u64 = 250;
const LONGEST_PROBE_MS: u64 = 30_000;

/// Up, or down since when, and why.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    down: Option<Down>,
    /// Since the last answer about a message, at most four: see [`DOWN_AFTER`].
    unanswered: Vec<Unanswered>,
}

/// A message all of whose sends, since the last answer about any message, ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) slot: Slot,
    pub(crate) seq: i64,
    pub(crate) sends: u32,
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

/// What a destination asks for, at most an hour: a wrong `Retry-After` must not hold messages up for ever.
pub(crate) fn bounded(retry_after_ms: u64) -> u64 {
    retry_after_ms.min(3_600_000)
}

impl Outage {
    pub(crate) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Since when, on the timer's clock, and why.
    pub(crate) fn down(&self) -> Option<(u64, &str)> {
        self.down.as_ref().map(|down| (down.since_us, down.reason.as_str()))
    }

    /// Whether a message may be sent: any while it is up, one as a probe otherwise.
    pub(crate) fn may_send(&self) -> bool {
        self.down.as_ref().is_none_or(|down| down.probe == Probe::Due)
    }

    pub(crate) fn probe_is_due(&mut self) {
        if let Some(down) = &mut self.down
            && down.probe == Probe::Waiting
        {
            down.probe = Probe::Due;
        }
    }

    pub(crate) fn probe_is_sent(&mut self) {
        if let Some(down) = &mut self.down {
            down.probe = Probe::Sent;
        }
    }

    /// An answer about a message came. Returns since when it was down, if it was.
    pub(crate) fn answered(&mut self) -> Option<u64> {
        self.unanswered.clear();
        self.down.take().map(|down| down.since_us)
    }

    /// A send ended without an answer about the message. Returns whether that makes five messages; otherwise it counts as an
    /// attempt.
    pub(crate) fn unanswered(&mut self, slot: Slot, seq: i64) -> bool {
        if let Some(known) = self.unanswered.iter_mut().find(|it| (it.slot, it.seq) == (slot, seq)) {
            known.sends += 1;
        } else if self.unanswered.len() + 1 == DOWN_AFTER {
            return true;
        } else {
            self.unanswered.push(Unanswered { slot, seq, sends: 1 });
        }
        false
    }

    /// The message was taken back: it shows nothing any more. How many of its sends had no answer.
    pub(crate) fn forget(&mut self, slot: Slot, seq: i64) -> u32 {
        let place = self.unanswered.iter().position(|it| (it.slot, it.seq) == (slot, seq));
        place.map_or(0, |place| self.unanswered.swap_remove(place).sends)
    }

    /// It is down from now on. Returns the messages of the earlier sends that showed it, whose attempts do not count.
    pub(crate) fn begins(&mut self, now_us: u64, reason: &str) -> Vec<Unanswered> {
        self.down = Some(Down { since_us: now_us, reason: reason.to_owned(), probes: 0, probe: Probe::Sent });
        std::mem::take(&mut self.unanswered)
    }

    /// The next probe comes after this time, in milliseconds.
    pub(crate) fn next_probe_ms(&mut self, retry_after_ms: Option<u64>, random: &mut Rng) -> u64 {
        let Some(down) = &mut self.down else { return 0 };
        let whole_ms = (FIRST_PROBE_MS << down.probes.min(20)).min(LONGEST_PROBE_MS);
        down.probes += 1;
        down.probe = Probe::Waiting;
        retry_after_ms.map_or(whole_ms - random.u64(0..=whole_ms / 4), bounded)
    }

    /// The probe was not sent after all.
    pub(crate) fn probe_came_back(&mut self) {
        if let Some(down) = &mut self.down {
            down.probe = Probe::Due;
        }
    }

    /// How often the next probe was put on the timer.
    #[cfg(all(test, feature = "http"))]
    pub(crate) fn probes(&self) -> u32 {
        self.down.as_ref().map_or(0, |down| down.probes)
    }

    pub(crate) fn waits_for_probe(&self) -> bool {
        self.down.as_ref().is_some_and(|down| down.probe == Probe::Sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> Outage {
        let mut outage = Outage::default();
        assert_eq!(outage.begins(7, "refused"), []);
        outage
    }

    #[test]
    fn five_sends_of_different_messages_without_an_answer_show_that_it_is_down__d6() {
        let mut outage = Outage::default();
        for _ in 0..9 {
            assert!(!outage.unanswered(1, 10), "one message that always fails does not stop the others");
        }
        assert!(!outage.unanswered(1, 11), "the same slot, but another message");
        assert!(!outage.unanswered(2, 12) && !outage.unanswered(3, 13));
        assert!(outage.unanswered(4, 14));
        assert!(!outage.is_down() && outage.may_send(), "that is for the caller to say");
        let sends = outage.begins(7, "503").into_iter().map(|it| (it.slot, it.seq, it.sends));
        assert_eq!(sends.collect::<Vec<_>>(), [(1, 10, 9), (1, 11, 1), (2, 12, 1), (3, 13, 1)]);
        assert_eq!(outage.down(), Some((7, "503")));
    }

    #[test]
    fn an_answer_about_a_message_begins_the_count_anew_and_ends_an_outage__d6() {
        let mut outage = Outage::default();
        for slot in 1..5 {
            outage.unanswered(slot, 10);
        }
        assert_eq!(outage.answered(), None);
        for slot in 5..9 {
            assert!(!outage.unanswered(slot, 10));
        }
        let mut outage = down();
        assert_eq!(outage.answered(), Some(7));
        assert!(!outage.is_down() && outage.may_send());
    }

    #[test]
    fn one_probe_at_a_time_and_only_when_its_time_has_come__d6() {
        let (mut outage, mut random) = (down(), Rng::with_seed(1));
        assert!(!outage.may_send() && outage.waits_for_probe());
        outage.next_probe_ms(None, &mut random);
        assert!(!outage.may_send() && !outage.waits_for_probe());
        outage.probe_is_due();
        assert!(outage.may_send());
        outage.probe_is_sent();
        assert!(!outage.may_send() && outage.waits_for_probe());
        outage.probe_is_due(); // an alarm that comes late
        assert!(!outage.may_send());
        outage.probe_came_back();
        assert!(outage.may_send());
    }

    #[test]
    fn probes_back_off_to_half_a_minute_unless_the_destination_says_when__d6() {
        let (mut outage, mut random) = (down(), Rng::with_seed(1));
        for whole_ms in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let after_ms = outage.next_probe_ms(None, &mut random);
            assert!((whole_ms - whole_ms / 4..=whole_ms).contains(&after_ms), "{after_ms} of {whole_ms}");
        }
        assert_eq!(outage.next_probe_ms(Some(120_000), &mut random), 120_000);
        (0..100).for_each(|_| assert!(outage.next_probe_ms(None, &mut random) <= 30_000));
        assert_eq!(Outage::default().next_probe_ms(None, &mut random), 0);
    }
}
