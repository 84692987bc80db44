//! Messages that a crashed process may have had in its hands: their attempts are on disk before they go out (rules D5, D6).

use super::{CRASHED, Dispatcher, Offer};
use crate::due::window::State;
use crate::store::Outcome;

/// How many suspects go out together, by how often each was tried.
const SUSPECTS: [usize; 3] = [256, 16, 1];

impl Dispatcher {
    /// These attempts are on disk: the messages go out.
    pub(crate) fn noted(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }

    /// The next group of messages that a crashed process may have had in its hands: their attempts are on disk before they
    /// go out, so that a message that ends the process is not tried for ever.
    ///
    /// The more often the process ended, the smaller the group, so that others are not counted with the one that ends it.
    pub(super) fn note_suspects(&mut self) {
        if !self.suspects_out.is_empty() || !self.outage.may_send() {
            return;
        }
        let mut room = if self.outage.is_down() { 1 } else { usize::MAX };
        while let Some((slot, seq)) = self.suspects.front().copied() {
            let Some(entry) = self.window.get(slot, seq).filter(|it| it.state == State::Retrying) else {
                self.suspects.pop_front();
                continue;
            };
            let attempts = entry.attempts;
            if self.window.is_paused(slot) {
                self.suspects.pop_front();
                self.leave_paused(slot);
                continue;
            }
            room = room.min(SUSPECTS[(attempts as usize).min(SUSPECTS.len() - 1)]);
            if self.suspects_out.len() >= room {
                break;
            }
            self.suspects.pop_front();
            if attempts >= self.retry.max_attempts {
                self.give_up(slot, Outcome::Dead, CRASHED);
                continue;
            }
            let entry = self.window.entry_mut(slot);
            entry.attempts += 1;
            entry.is_noted = true;
            self.suspects_out.insert(seq);
            self.keep_attempt(seq, attempts + 1, None, CRASHED);
            self.outcomes.before_send.push(seq);
        }
    }
}
