//! Messages that leave memory while they wait for their next attempt (rules D6, D8). See `window/parking.rs`.

use rustc_hash::FxHashMap;

use super::Dispatcher;
use crate::due::clocks::Alarm;
use crate::due::destination::{Destination, Queues};
use crate::due::doubt::Key;
use crate::due::fair_queue::Offer;
use crate::due::lanes::Slot;
use crate::due::outage::TRIES_OF_A_ROUND;
use crate::due::window::Parked;
use crate::store::WaitingRow;

/// A message that waits longer than this leaves memory.
const LONG_US: u64 = 10_000_000;
/// If half of the memory is used, a message that waits this long leaves too.
const SHORT_US: u64 = 500_000;
/// How long before their next attempt parked messages are read. It is shorter than `SHORT_US`.
const READ_BEFORE_MS: i64 = 250;

/// No parked messages are read while this many messages of keys in doubt are ready.
const MOST_READY: usize = 2_048;
/// How many parked messages are read at most in one load.
const MOST_AT_ONCE: usize = 512;

impl Dispatcher {
    /// Lets a message leave memory that waits for `after_us`, if that is long.
    pub(super) fn park(&mut self, slot: Slot, after_us: u64) {
        let least_us = if self.window.is_half_full() { SHORT_US } else { LONG_US };
        if after_us >= least_us && !self.window.is_global() {
            self.window.park(slot);
        }
    }

    /// Whether nothing of the share may be sent for long, and more than half of the memory is used. Then nothing of it waits there.
    fn is_held(&self, share: u32) -> bool {
        let (Destination { is_paused, pace, .. }, soon_us) = (&self.to[share], self.clocks.now_us() + LONG_US);
        let pauses = || *is_paused || pace.tokens(soon_us) == 0 || self.tenants.pauses(self.tenant_at(share), soon_us);
        share != 0 && self.window.is_half_full() && pauses()
    }

    /// The loader looks at the share if it is to be held.
    pub(crate) fn look_if_held(&mut self, share: u32) {
        if self.is_held(share) {
            self.wants_look(share);
        }
    }

    /// The shares to look at with this load. A held share waits for its tenant, or for its destination.
    pub(crate) fn take_looks(&mut self) -> Vec<u32> {
        let (held, others): (Vec<_>, _) = self.window.take_looks().into_iter().partition(|share| self.is_held(*share));
        self.window.hold(&held);
        for share in held {
            self.offer_again(share);
            let (tenant, home) = (self.tenant_at(share), self.to.home(share));
            if tenant == 0 || self.tenant_may_send(tenant, share) {
                self.to[home].held.push(share);
                if self.to[home].pace.may_send() {
                    self.wait_for_tokens(home);
                }
            }
        }
        others
    }

    /// Only messages of the share that are still to be sent stay in the queues.
    pub(super) fn offer_again(&mut self, share: u32) {
        let Queues { fresh, in_doubt, .. } = &mut self.to[share].queues;
        for offer in fresh.take_all(share).into_iter().chain(in_doubt.take_all(share)) {
            if let Some(slot) = self.accept(offer) {
                self.offer_message(slot, self.window.entry(slot).seq);
            }
        }
    }

    /// After a restart: if the key of this message still waits for long, its lane is only in the store until then.
    pub(super) fn clear_away_if_long(&mut self, slot: Slot, wait_us: u64) {
        let entry = self.window.entry(slot);
        let seq = entry.seq;
        if let Some(lane) = entry.lane.filter(|_| wait_us >= LONG_US) {
            // If messages behind it are not committed, it leaves with them.
            self.window.clear_away(lane);
            let lane = self.window.lane(lane);
            self.note_parked(seq, lane.share, lane.number, false);
            self.wants_load = true; // there is room again
        }
    }

    /// After a start: of these messages, which may have arrived, those that waited for their next attempt keep their
    /// place. Nothing else of their lanes comes into memory before (D4).
    pub(crate) fn keep_places(&mut self, mut rows: Vec<WaitingRow>) {
        rows.retain(|row| row.next_ms.is_some());
        rows.sort_unstable_by_key(|row| row.tried_ms); // of several in a lane, the one that was tried last counts
        let of_lanes = rows.into_iter().filter_map(|row| Some((self.window.number(row.lane)?, row)));
        for (number, row) in of_lanes.collect::<FxHashMap<_, _>>() {
            let share = self.open_share(row.share, || None);
            if self.window.is_global() || self.window.is_lane_paused(share, number) {
                continue;
            }
            self.window.keep_away(share, number, (row.due_ms, row.seq));
            self.note_parked(row.seq, share, number, true);
            let Destination { doubts, was_down, .. } = &mut self.to[share];
            let doubt = doubts.get_or_add(Key::Lane(share, number));
            (doubt.fails, doubt.is_no_sign) = (row.attempts, !*was_down);
            doubt.accepted_before = Some(0);
            match row.next_ms {
                Some(next_ms) if next_ms > self.steady_ms() => {
                    self.wait_as_stored(Key::Lane(share, number), next_ms);
                }
                _ => self.want(share, row.seq),
            }
        }
    }

    fn note_parked(&mut self, seq: i64, share: u32, number: i64, keeps_place: bool) {
        let key = Key::Lane(share, number);
        let doubt = self.to[share].doubts.get_or_add(key);
        doubt.keeps_place = keeps_place;
        if let Some(before) = doubt.parked.replace(seq) {
            self.parked_lanes.remove(&before);
        }
        self.parked_lanes.insert(seq, key);
    }

    /// The parked messages whose attempts are stored in this transaction.
    pub(crate) fn take_parked(&mut self) -> Vec<Parked> {
        let parked = self.window.take_parked();
        for it in &parked {
            let share = it.share;
            if let Some(number) = it.lane {
                if self.window.is_lane_paused(share, number) {
                    continue; // it comes back in the order of its lane
                }
                self.note_parked(it.seq, share, number, true);
                continue;
            }
            let doubt = self.to[share].doubts.forget(Key::Message(share, it.seq));
            if let Some(alarm) = doubt.and_then(|doubt| doubt.alarm) {
                self.clocks.cancel(alarm);
            }
            self.expect_tried(share, it.next_ms);
        }
        parked
    }

    /// The message is in memory again, or its doubt has ended.
    pub(crate) fn forget_parked(&mut self, seq: i64) {
        if let Some(key) = self.parked_lanes.remove(&seq)
            && let Some(doubt) = self.to[key.share()].doubts.get_mut(key)
        {
            doubt.parked.take_if(|parked| *parked == seq);
        }
    }

    /// Whether this message may come into memory now. `false` if another message of its lane has taken its place.
    pub(crate) fn is_wanted(&self, row: &WaitingRow) -> bool {
        if self.window.number(row.lane).is_none() {
            return true;
        }
        let Some(key @ Key::Lane(share, number)) = self.parked_lanes.get(&row.seq).copied() else { return false };
        let is_parked = self.to[share].doubts.get(key).is_some_and(|it| it.parked == Some(row.seq) && !it.waits());
        is_parked && self.window.lane_numbered(number).is_some_and(|lane| !self.window.lane(lane).is_waiting)
    }

    /// A message that is not in memory and has attempts is taken back. If its lane waited for it, the lane goes on.
    /// `share_id`: of its destination.
    pub(crate) fn take_back_parked(&mut self, share_id: i64, seq: i64) {
        let Some(share) = self.window.share_numbered(share_id) else { return };
        self.to[share].outage.forget(Key::Message(share, seq));
        self.to[share].doubts.forget(Key::Message(share, seq));
        if let Some(key) = self.parked_lanes.remove(&seq) {
            if let Some(doubt) = self.to[share].doubts.get_mut(key) {
                doubt.parked = None;
                if let Some(alarm) = doubt.alarm.take() {
                    self.clocks.cancel(alarm);
                }
            }
            self.has_waited(key);
            self.to[share].doubts.calms_down(key);
            self.to[share].outage.forget_unless_down(key);
        }
    }

    /// How many parked messages may come into memory. While the destination is down, there is room for those of a round:
    /// the others may be of dead keys, and none of them leaves memory.
    pub(crate) fn room_for_tried(&self, share: u32) -> usize {
        let least = if self.to[share].outage.is_down() { TRIES_OF_A_ROUND } else { 0 };
        self.room_beside_ready(share).max(least)
    }

    /// If very many keys are in doubt, they must not fill the memory, because they only have the spare places.
    fn room_beside_ready(&self, share: u32) -> usize {
        let ready = self.to[share].queues.in_doubt.iter().map(|offer| match offer {
            Offer::Message(slot, seq) => self.window.get(*slot, *seq),
            Offer::Lane(lane) => self.window.lane(*lane).first().map(|(_, slot)| self.window.entry(slot)),
        });
        let bytes: usize = ready.take(MOST_READY).flatten().map(|entry| entry.size as usize).sum();
        let bounds = self.window.bounds();
        if bytes > bounds.bytes / 4 {
            return 0;
        }
        let count = self.to[share].queues.in_doubt.len();
        MOST_READY.min(bounds.messages / 4 + 1).saturating_sub(count).min(MOST_AT_ONCE)
    }

    /// The message does not come into memory by itself. If its lane waited for it, the lane goes on in its order.
    pub(crate) fn goes_on_without(&mut self, seq: i64) {
        let Some(Key::Lane(_, number)) = self.parked_lanes.get(&seq).copied() else { return };
        self.forget_parked(seq);
        let lane = self.window.lane_numbered(number).filter(|lane| !self.window.lane(*lane).is_waiting);
        if let Some(lane) = lane {
            self.window.come_back(lane);
            self.offer(lane);
            self.window.tidy(lane);
        }
    }

    /// Reads this message at once, if the store has it.
    pub(crate) fn want(&mut self, share: u32, seq: i64) {
        self.to.work_mut(share).wanted.push(seq);
        self.wants_look(share);
    }

    /// The loader should look for messages of the share.
    pub(super) fn wants_look(&mut self, share: u32) {
        self.window.look_at(share);
        self.wants_load = true;
    }

    /// The messages of the share to read at once.
    pub(crate) fn take_wanted(&mut self, share: u32) -> Vec<i64> {
        std::mem::take(&mut self.to.work_mut(share).wanted)
    }

    /// Reads from the store what is wanted, and did not fit into memory, with the next group.
    pub(crate) fn want_again(&mut self, share: u32, seqs: impl IntoIterator<Item = i64>) {
        self.to.work_mut(share).wanted.extend(seqs);
    }

    /// Whether a message of the share should be read before its next attempt. The answer is given only once.
    pub(crate) fn wants_one_early(&mut self, share: u32) -> bool {
        std::mem::take(&mut self.to.work_mut(share).wants_one_early)
    }

    /// Until when the loader should read messages, by the time of their next attempt.
    pub(crate) fn reads_tried_until(&self) -> i64 {
        self.steady_ms() + READ_BEFORE_MS
    }

    /// A parked message of the share waits for its next attempt until `next_ms`.
    pub(crate) fn expect_tried(&mut self, share: u32, next_ms: i64) {
        if self.to.work(share).next_tried.as_ref().is_some_and(|(at_ms, _)| *at_ms <= next_ms) {
            return;
        }
        let left_ms = next_ms.saturating_sub(READ_BEFORE_MS).saturating_sub(self.steady_ms());
        let at_us = self.clocks.now_us().saturating_add(left_ms.max(0).cast_unsigned().saturating_mul(1_000));
        let alarm = self.clocks.arm_at(at_us, Alarm::Tried(share));
        if let Some((_, Some(before))) = self.to.work_mut(share).next_tried.replace((next_ms, alarm)) {
            self.clocks.cancel(before);
        }
    }

    /// It is time to read parked messages. Each load reads them: the alarm only makes it come in time.
    pub(super) fn read_tried(&mut self, share: u32) {
        self.to.work_mut(share).next_tried = None;
        self.wants_look(share);
    }
}
