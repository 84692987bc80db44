//! The named destinations in figures, from memory and from the store (rule D23).
//!
//! As in `looking.rs`, memory is looked through in parts, and the store is read by a connection of its own. So neither the
//! senders nor the writer wait.

use super::Engine;
use crate::base::error::DeliveryError;
use crate::due::tallies::Tally;
use crate::due::window::State;
use crate::message::shares::destination_in;
use crate::store::look::destinations::{DestinationAnswers, DestinationCounts, DestinationSeen, Near, NearByShare};
use crate::store::look::snapshot::Snapshot;

/// The label that the metrics give to all others: one that has this name is among them.
const OTHER: &str = "other";

/// The figures of a destination for the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationMeasures {
    /// `None`: these are the sums of all others.
    pub name: Option<String>,
    /// Messages that have arrived.
    pub delivered: u64,
    /// Those among them that were sent more than a second after they were due.
    pub late: u64,
    /// How late all of them were together, in microseconds.
    pub lateness_us: u64,
    /// Attempts that failed, also those that do not count.
    pub failed: u64,
    /// 1 if it is down and not paused; of the others, how many are.
    pub down: u64,
    /// 1 if it is paused; of the others, how many are.
    pub paused: u64,
    /// How long its first message has been due, in milliseconds; of the others it is not told.
    pub overdue_ms: i64,
}

impl Engine {
    /// The number of named destinations that are down.
    pub fn destinations_down(&self) -> usize {
        self.lock_dispatcher().to.tallies.down().len()
    }

    /// The destinations with these names, as far as there are any. Without names: `limit` of them. Those that are down come
    /// first, then those whose messages are overdue for longest, then the others by name.
    ///
    /// # Errors
    /// The store cannot be read, or is closed.
    pub fn destination_figures(
        &self,
        names: Option<&[String]>,
        limit: usize,
    ) -> Result<(DestinationCounts, Vec<DestinationSeen>), DeliveryError> {
        let now_ms = self.wall_ms();
        let near = self.near_by_share(now_ms);
        let down: Vec<i64> = self.lock_dispatcher().to.tallies.down().iter().copied().take(limit).collect();
        let (counts, found) = self.snapshot()?.destinations_beside(names, down, limit, now_ms, &near)?;
        let dispatcher = self.lock_dispatcher();
        let answers = |share| Some(self.answers_of(dispatcher.to.tallies.get(share)));
        let seen = found.into_iter().map(|(share, seen)| DestinationSeen { answers: answers(share), ..seen }).collect();
        Ok((DestinationCounts { down: Some(dispatcher.to.tallies.down().len() as u64), ..counts }, seen))
    }

    /// The number of destinations, and the first `most` that were sent to since the store was opened. The sums of all others
    /// come last.
    ///
    /// # Errors
    /// The store cannot be read, or is closed.
    pub fn destination_measures(
        &self,
        most: usize,
    ) -> Result<(DestinationCounts, Vec<DestinationMeasures>), DeliveryError> {
        let now_ms = self.wall_ms();
        let near = self.near_by_share(now_ms);
        let snapshot = self.snapshot()?;
        let counts = snapshot.destination_counts()?;
        let (tallies, rest, down) = {
            let dispatcher = self.lock_dispatcher();

            let all = dispatcher.to.tallies.all().enumerate();
            let (told, others): (Vec<_>, Vec<_>) = all.partition(|(place, it)| *place < most && &*it.name != OTHER);
            let sum = |of: fn(&Tally) -> u64| others.iter().map(|(_, it)| of(it)).sum();
            let rest = DestinationMeasures {
                delivered: sum(|it| it.delivered),
                late: sum(|it| it.late),
                lateness_us: sum(|it| it.lateness_us),
                failed: sum(|it| it.failed),
                down: sum(|it| u64::from(it.down.is_some())),
                ..DestinationMeasures::default()
            };
            let told: Vec<Tally> = told.into_iter().map(|(_, it)| it.clone()).collect();
            (told, rest, dispatcher.to.tallies.down().len() as u64)
        };
        let mut found = Vec::with_capacity(tallies.len() + 1);
        for it in tallies {
            let (waiting_ms, is_paused) = snapshot.first_due_and_pause_of(it.id)?;
            let near_ms = near.get(&it.id).and_then(|near| near.first_due_ms);
            let first_ms = near_ms.into_iter().chain(waiting_ms).min();
            found.push(DestinationMeasures {
                name: Some(it.name.to_string()),
                delivered: it.delivered,
                late: it.late,
                lateness_us: it.lateness_us,
                failed: it.failed,
                down: u64::from(it.down.is_some()),
                paused: u64::from(is_paused),
                overdue_ms: first_ms.map_or(0, |first_ms| (now_ms - first_ms).max(0)),
            });
        }
        let told = found.iter().map(|it| it.paused).sum::<u64>();
        found.push(DestinationMeasures { paused: counts.paused.saturating_sub(told), ..rest });
        Ok((DestinationCounts { down: Some(down), ..counts }, found))
    }

    fn answers_of(&self, tally: Option<&Tally>) -> DestinationAnswers {
        let Some(it) = tally else { return DestinationAnswers::default() };
        let text = |found: &Option<(u64, Box<str>)>| found.as_ref().map(|(_, text)| text.to_string());
        let at_ms = |found: &Option<(u64, Box<str>)>| found.as_ref().map(|(at_us, _)| self.epoch_ms(*at_us));
        DestinationAnswers {
            delivered: it.delivered,
            late: it.late,
            failed: it.failed,
            last_error: text(&it.last_error),
            last_error_ms: at_ms(&it.last_error),
            down_since_ms: at_ms(&it.down),
            down_reason: text(&it.down),
        }
    }

    /// The messages in memory, by their named destination.
    fn near_by_share(&self, now_ms: i64) -> NearByShare {
        let mut found = NearByShare::default();
        if self.lock_dispatcher().window.named_shares() == 0 {
            return found; // no message in memory names any
        }
        self.look_through_window(|window, entry| {
            let share = destination_in(window.share(entry.share).id);
            if share == 0 || entry.state == State::Over {
                return;
            }
            let Near { waiting, overdue, first_due_ms, next_try_ms } = found.entry(share).or_default();
            if entry.is_near {
                *waiting += 1;
                *overdue += u64::from(entry.due_ms <= now_ms);
            }
            *first_due_ms = first_due_ms.iter().copied().chain([entry.due_ms]).min();
            if matches!(entry.state, State::Retrying | State::Parked) {
                *next_try_ms = next_try_ms.iter().copied().chain(entry.next_ms).min();
            }
        });
        found
    }

    fn snapshot(&self) -> Result<Snapshot, DeliveryError> {
        Snapshot::open(self.ownership.upgrade().ok_or(DeliveryError::Closed)?.path())
    }
}
