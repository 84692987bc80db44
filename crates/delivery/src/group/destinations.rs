//! Named destinations are set and removed (D23). A removed one takes no message and sends none. Its messages become dead
//! letters, some in each group, and what is being sent in the moment of the removal may still arrive.

use super::bulk::CHANGE;
use super::{Changed, Group};
use crate::due::dispatcher::FailingNote;
use crate::due::window::State;
use crate::group::items::Answer;
use crate::group::running_actions::Removing;
use crate::message::named::NamedSettings;
use crate::message::record::record_of;
use crate::sinks::TakesNamed;
use crate::store::{Done, Letter, Outcome, Position, Result, StoredDestination};

/// About how many bytes of messages one group makes dead letters of.
const BYTES: usize = 4 << 20;

impl Group<'_> {
    /// `settings`: JSON, checked.
    pub(super) fn set_destination(&mut self, name: &str, settings: &str) -> Result<Answer> {
        if self.takes_named == TakesNamed::No {
            return Ok(Answer::Refused);
        }
        let read = |json: &str| serde_json::from_str::<NamedSettings>(json);
        let known = self.store.destination(name).cloned();
        let is_new = known.is_none();
        let before = known.unwrap_or_else(|| StoredDestination { name: name.into(), ..StoredDestination::default() });
        let mut after = read(settings).expect("it was checked").after(read(&before.settings).ok(), self.now_ms);
        let is_paused = after.paused.take().unwrap_or(before.paused_ms.is_some());
        let settings = serde_json::to_string(&after).expect("it is plain data").into();
        if settings == before.settings && is_paused == before.paused_ms.is_some() {
            return Ok(Answer::Replaced); // it fails since then, as before
        }
        let after = StoredDestination { settings, ..before };
        self.put_destination(after.paused(is_paused.then_some(self.now_ms), None))?;
        Ok(if is_new { Answer::Accepted } else { Answer::Replaced })
    }

    /// Pauses or resumes one destination, and changes nothing else of it.
    pub(super) fn pause_destination(&mut self, name: &str, is_paused: bool) -> Result<Answer> {
        let Some(stored) = self.store.destination(name).cloned() else { return Ok(Answer::Unknown) };
        self.put_destination(stored.paused(is_paused.then_some(self.now_ms), None))?;
        Ok(if is_paused { Answer::Paused } else { Answer::Resumed })
    }

    /// Notes since when destinations fail, and pauses those that have failed for too long.
    pub(crate) fn note_failing(&mut self, notes: &[(i64, FailingNote)]) -> Result<()> {
        for (share, note) in notes {
            let stored = self.store.destination_numbered(*share).filter(|it| !it.settings.is_empty()).cloned();
            let Some(it) = stored else { continue }; // it was removed
            match note {
                FailingNote::Disabled(why) => self.put_destination(it.paused(Some(self.now_ms), Some(why)))?,
                FailingNote::Since(since_ms) => {
                    self.store.put_destination(StoredDestination { failing_ms: *since_ms, ..it })?;
                }
            }
        }
        Ok(())
    }

    /// Removes a destination, with its secrets. No message can name it any more. `dead`: its messages become dead letters.
    /// Otherwise it stays if it has some.
    pub(super) fn remove_destination(&mut self, name: &str, dead: bool) -> Result<Answer> {
        let Some(stored) = self.store.destination(name).cloned() else { return Ok(Answer::Unknown) };
        let share = stored.share;
        if !dead && self.has_messages(share)? {
            return Ok(Answer::Refused);
        }
        self.put_destination(StoredDestination { settings: "".into(), ..stored })?;
        self.actions.removing.get_or_insert_with(|| Removing::of(share));
        Ok(Answer::Removed)
    }

    fn put_destination(&mut self, it: StoredDestination) -> Result<()> {
        self.changed.push(Changed::Destination(self.store.put_destination(it)?));
        Ok(())
    }

    fn has_messages(&self, share: i64) -> Result<bool> {
        let is_in_memory = self.dispatcher.lock().window.has_some_of(share);
        Ok(is_in_memory
            || !self.store.plan(share, (i64::MIN, 0), i64::MAX, 1)?.is_empty()
            || self.store.next_share(share, share)?.is_some())
    }

    /// Makes dead letters of some messages of the first destination that was removed.
    pub(crate) fn bury(&mut self) -> Result<()> {
        let Some(mut removing) = self.actions.removing.take() else { return Ok(()) };
        let share = removing.share;
        let (found, is_last) = match removing.slots {
            None => self.rows_to_bury(&mut removing)?,
            Some(from) => {
                let in_window = self.dispatcher.lock().window.shares_of(share);
                let (near, next) = self.near_ones(from, |entry| in_window.contains(&entry.share));
                removing.slots = next;
                (near, false)
            }
        };
        self.bury_each(&mut removing, &found)?;
        removing.has_more = true;
        if found.is_empty() && is_last {
            {
                let dispatcher = self.dispatcher.lock();
                let is_sending = |seq: i64| dispatcher.state_of(seq).is_some_and(|it| it.0 == State::Sending);
                removing.sending.retain(|seq| is_sending(*seq));
            }
            removing.has_more = removing.sending.is_empty();
            if removing.has_more && !self.has_messages(share)? {
                self.store.forget_destination(share)?;
                self.dispatcher.lock().forget_destination(share);
                self.actions.removing = self.store.removed_destination().map(|it| Removing::of(it.share));
                return Ok(());
            }
            if removing.has_more {
                let from = (i64::MIN, 0); // another round
                (removing.of, removing.from, removing.at, removing.slots) = (share, from, from, Some(0));
            }
        }
        self.actions.removing = Some(removing);
        Ok(())
    }

    /// The next rows of this round, of at most `CHANGE` shares. `true`: no share is left.
    fn rows_to_bury(&self, removing: &mut Removing) -> Result<(Vec<Position>, bool)> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for _ in 0..CHANGE {
            for row in self.store.plan(removing.of, removing.at, i64::MAX, CHANGE - found.len())? {
                removing.at = (row.due_ms, row.seq);
                found.push(removing.at);
                bytes += row.size as usize;
                if bytes > BYTES {
                    return Ok((found, false));
                }
            }
            if found.len() == CHANGE {
                break;
            }
            let Some(next) = self.store.next_share(removing.share, removing.of)? else { return Ok((found, true)) };
            (removing.of, removing.at) = (next, removing.from);
        }
        Ok((found, false))
    }

    fn bury_each(&mut self, removing: &mut Removing, found: &[Position]) -> Result<()> {
        let mut done = Vec::with_capacity(found.len());
        for position in found {
            match self.take_back_at(*position, Outcome::Dead)? {
                Ok(left) => done.push(Done {
                    attempts: left.tried.map_or(0, |it| it.attempts),
                    redelivered: left.redelivered,
                    ..self.done(position.1, position.0, Outcome::Dead)
                }),
                Err(Answer::Delivering) => removing.sending.push(position.1),
                Err(_) => {} // its outcome is known
            }
        }
        let messages = self.store.bodies(&done.iter().map(|it| it.seq).collect::<Vec<_>>())?;
        let mut letters = Vec::with_capacity(done.len());
        for it in &done {
            let message = &messages[&it.seq];
            let name = message.body.destination().unwrap_or_default();
            let reason = format!("its destination {name} was removed");
            letters.push(Letter {
                source: "delivery".to_owned(),
                line: it.seq,
                reason,
                allowed: "a destination that is set: set it again, and requeue this".to_owned(),
                record: record_of(message),
            });
        }
        self.store.put_letters(&letters, self.now_ms)?; // before they have their outcome, which ends what they wait for
        self.finish(&done)?;
        self.taken_back.extend(done.iter().map(|it| (it.seq, None)));
        self.counts.dead_letters += done.len() as u64;
        self.counts.undeliverable += done.len() as u64;
        Ok(())
    }
}
