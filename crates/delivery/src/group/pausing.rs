//! Pauses of all messages, a key, a destination or a tenant (D16). They have one rule: a pause lasts, also after a restart,
//! until it is resumed, or until the wall clock shows the time that the last pause of it has named.

use super::{Group, held_of, lane_of};
use crate::group::items::Answer;
use crate::store::{PAUSED, PartKind, Result};

/// How many pauses end in one group.
const ENDING: usize = 1_000;

impl Group<'_> {
    /// Pauses a part, or resumes it. A pause takes effect at once, so that nothing is sent after its answer.
    pub(super) fn pause(
        &mut self,
        part: PartKind,
        name: &str,
        is_paused: bool,
        until_ms: Option<i64>,
    ) -> Result<Answer> {
        let done = match part {
            PartKind::All => self.pause_all(is_paused)?,
            PartKind::Key => self.pause_key(name, is_paused)?,
            PartKind::Destination => self.pause_destination(name, is_paused)?,
            PartKind::Tenant => self.pause_tenant(name, is_paused)?,
        };
        if let Err(answer) = done {
            return Ok(answer);
        }
        self.store.put_pause_end(part, name, until_ms)?;
        Ok(if is_paused { Answer::Paused } else { Answer::Resumed })
    }

    /// Resumes what was paused until now, or earlier.
    pub(crate) fn end_pauses(&mut self) -> Result<()> {
        for (part, name) in self.store.take_ended_pauses(self.now_ms, ENDING)? {
            self.pause(part, &name, false, None)?;
        }
        Ok(())
    }

    fn pause_all(&mut self, is_paused: bool) -> Result<Result<(), Answer>> {
        self.store.put_meta(PAUSED, is_paused.then_some(self.now_ms))?;
        self.resumes = !is_paused;
        if is_paused {
            self.dispatcher.lock().pause(true);
        }
        Ok(Ok(()))
    }

    /// If all messages have one order, a key cannot be paused: later messages would overtake its messages.
    fn pause_key(&mut self, key: &str, is_paused: bool) -> Result<Result<(), Answer>> {
        let lane = lane_of(Some(key)).expect("a key has a lane");
        self.resumed_lanes.retain(|other| *other != lane);
        if !is_paused {
            self.store.resume_lane(lane)?;
            self.resumed_lanes.push(lane);
            return Ok(Ok(()));
        }
        if self.is_global() || !self.store.pause_key(lane, key, self.now_ms)? {
            return Ok(Err(Answer::Refused));
        }
        let gone = self.dispatcher.lock().pause_keys(&[lane]);
        let held: Vec<_> = gone.iter().filter(|gone| gone.was_near).map(held_of).collect();
        self.store.hold(&held)?;
        Ok(Ok(()))
    }
}
