//! A destination that has failed for long is paused by itself, if its settings say so (rule D23).
//!
//! The time counts from the first failure since the last success, by the wall clock, also while no process runs. The store
//! gets it after a minute of failure: an outage costs one write, and a destination that fails now and then costs none.

use super::{Dispatcher, Event, FailingNote};
use crate::base::display::cut;
use crate::base::times::rfc_3339;
use crate::due::destination::Failing;
use crate::due::tallies::LONGEST_ERROR;

const NOTED_AFTER_MS: i64 = 60_000;
const DAY_MS: f64 = 86_400_000.0;

impl Dispatcher {
    /// A message of this share has arrived.
    pub(super) fn fails_no_more(&mut self, share: u32) {
        if self.to[share].failing.take().is_some_and(|it| it.is_noted) {
            self.outcomes.failing.push((self.window.share(share).id, FailingNote::Since(None)));
        }
    }

    /// A message of this share was not accepted.
    pub(super) fn fails_still(&mut self, share: u32, reason: &str) {
        let (now_ms, id) = (self.clocks.wall.now_us().div_euclid(1_000), self.window.share(share).id);
        let to = &mut self.to[share];
        let days = to.named.as_ref().and_then(|it| it.disable_after_days).filter(|_| !to.is_paused);
        let (Some(days), Some(name)) = (days, &to.name) else { return };
        let failing = to.failing.get_or_insert(Failing { since_ms: now_ms, is_noted: false });
        let for_ms = now_ms.saturating_sub(failing.since_ms);
        if for_ms >= (days * DAY_MS) as i64 {
            let since = rfc_3339(failing.since_ms);
            let (since, reason) = (String::from_utf8_lossy(&since), cut(reason, LONGEST_ERROR));
            let reason = format!("no success since {since}, at last: {reason}");
            self.events.push(Event::Disabled { destination: name.to_string(), reason: reason.clone() });
            self.outcomes.failing.push((id, FailingNote::Disabled(reason)));
            to.is_paused = true; // at once; the commit makes it last
        } else if for_ms >= NOTED_AFTER_MS && !std::mem::replace(&mut failing.is_noted, true) {
            self.outcomes.failing.push((id, FailingNote::Since(Some(failing.since_ms))));
        }
    }
}
