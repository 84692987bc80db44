//! Messages that a crashed process may have been sending. Their attempts are on disk before they go out (rules D5, D6).

use super::{CRASHED, Dispatcher};
use crate::due::window::State;
use crate::store::{Attempts, Outcome};

/// How many suspects go out together, by the number of counted attempts.
const SUSPECTS: [usize; 3] = [256, 16, 1];

impl Dispatcher {
    /// Sends these messages, because their attempts are on disk.
    pub(crate) fn noted(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                self.offer_message(slot, seq);
            }
        }
    }

    /// Forms the next group of messages that a crashed process may have been sending. Their attempts are on disk before
    /// they go out. A message that ends the process is therefore not tried for ever.
    ///
    /// The group is smaller if the process ended more often. Other messages then do not get attempts counted because of
    /// the bad one.
    pub(super) fn note_suspects(&mut self) {
        let mut room = if self.outage.is_down() { 1 } else { usize::MAX };
        while let Some((slot, seq)) = self.suspects.front().copied() {
            let Some(entry) = self.window.get(slot, seq).filter(|it| it.state == State::Retrying) else {
                self.suspects.pop_front();
                continue;
            };
            let strikes = entry.strikes;
            if self.window.is_paused(slot) {
                self.suspects.pop_front();
                self.leave_paused(slot);
                continue;
            }
            room = room.min(SUSPECTS[(strikes as usize).min(SUSPECTS.len() - 1)]);
            if self.suspects_out.len() >= room {
                break;
            }
            self.suspects.pop_front();
            if strikes >= self.retry.max_attempts {
                self.give_up(slot, Outcome::Dead, CRASHED);
                continue;
            }
            self.window.entry_mut(slot).is_noted = true;
            self.suspects_out.insert(seq);
            let made = self.attempts_of(slot, None, CRASHED);
            let noted = Attempts { attempts: made.attempts + 1, strikes: strikes + 1, ..made };
            self.outcomes.attempts.push(noted);
            self.outcomes.before_send.push(seq);
        }
    }
}
