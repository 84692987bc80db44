//! Places for sends: ordinary ones for young sends, spare ones for sends that are slow or in doubt (rules D6, D18).
//! How many there are: the `threads` and `spare` of each sink, and the settings.
//!
//! ```text
//! fresh ----> ordinary place --- older than 0.1 s ---> spare place ---> free
//! in doubt ------------------------------------------> spare place ---> free
//! ```
//!
//! - A send is *young* until it is older than 0.1 s, or older than ten times the usual duration if that is longer. Only
//!   young sends take ordinary places. A send that hangs thus leaves its ordinary place to others, while a spare place
//!   is free.
//! - A send of a key in doubt takes a spare place from its start. So keys in doubt never take an ordinary place.
//! - Without spare places, every send keeps its ordinary place, and keys in doubt share these with the others: [`Sharing`].
//! - After a cut-off, the call keeps its place until it returns. A sink without spare places may have
//!   [`PlaceLimits::hanging`] such calls beside its places.
//! - Ordinary and spare places have separate limits for bytes. A send may start while the limit is not reached, so one
//!   send may go over it. A send with no more bytes than its part of the limit, such as 16 KiB of 16 MiB in 1,024 places,
//!   starts all the same. So large messages that hang hold up no small ones, and all sends together have at most twice the
//!   limit.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::sharing::Sharing;

/// A send is young for at least this time.
const YOUNG_US: u64 = 100_000;
/// A send is young for at least this number of usual durations.
const YOUNG_TIMES: f64 = 10.0;
/// How much a longer and a shorter duration move the usual duration. With these, nine of ten messages take longer. So
/// slow messages do not say what is usual while one of ten is fast.
const STEP_UP: f64 = 1.05;
const STEP_DOWN: f64 = 1.5;

/// How many sends there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Ordinary places.
    pub young: usize,
    /// Spare places.
    pub spare: usize,
    /// Bytes of the sends in ordinary places, without the sends of keys in doubt if there are spare places. Small messages
    /// may take as many again.
    pub young_bytes: usize,
    /// Bytes of the sends in spare places. Small messages may take as many again.
    pub spare_bytes: usize,
    /// Calls that were cut off and have not returned. They come beside the ordinary places, if there are no spare ones.
    pub hanging: usize,
}

impl PlaceLimits {
    pub(crate) const SPARE_BYTES: usize = 32 << 20;

    pub(crate) const NONE: Self = Self {
        young: usize::MAX,
        spare: usize::MAX,
        young_bytes: usize::MAX,
        spare_bytes: usize::MAX,
        hanging: usize::MAX,
    };
}

/// The places that one send takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Ordinary,
    Spare,
    /// The call was cut off, and the sink has no spare places.
    None,
}

#[derive(Debug)]
struct Place {
    began_us: u64,
    bytes: usize,
    is_in_doubt: bool,
    takes: Takes,
    /// The call was cut off, and has not returned.
    is_cut_off: bool,
}

/// The places that are taken.
#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    taken: FxHashMap<u64, Place>,
    /// Sends in ordinary places in the order of their start, without those of keys in doubt.
    young_line: VecDeque<u64>,
    young: usize,
    spare: usize,
    in_doubt: usize,
    hanging: usize,
    /// Calls that were cut off and have not returned, with or without a place.
    cut_off: usize,
    /// When the last of them was cut off.
    cut_off_us: u64,
    young_bytes: usize,
    spare_bytes: usize,
    usual_us: f64,
    /// When [`Places::age`] ran last.
    now_us: u64,
    sharing: Sharing,
    /// An alarm is set for the time when a send stops being young.
    pub(crate) is_older_armed: bool,
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits) -> Self {
        Self {
            limits,
            taken: FxHashMap::default(),
            young_line: VecDeque::new(),
            young: 0,
            spare: 0,
            in_doubt: 0,
            hanging: 0,
            cut_off: 0,
            cut_off_us: 0,
            young_bytes: 0,
            spare_bytes: 0,
            usual_us: 0.0,
            now_us: 0,
            sharing: Sharing::default(),
            is_older_armed: false,
        }
    }

    pub(crate) fn set_limits(&mut self, limits: PlaceLimits) {
        self.limits = limits;
    }

    /// Spare places that are taken, with those of keys in doubt.
    pub(crate) fn spare_taken(&self) -> usize {
        self.spare
    }

    pub(crate) fn are_free(&self) -> bool {
        self.taken.is_empty()
    }

    /// A send that lasts longer is slow, and not young any more.
    pub(crate) fn young_us(&self) -> u64 {
        YOUNG_US.max((self.usual_us * YOUNG_TIMES) as u64)
    }

    /// Whether all calls under way were cut off, the last one this long ago. Then no place becomes free soon.
    pub(crate) fn only_hang(&self, since_us: u64) -> bool {
        self.taken.len() == self.cut_off && self.now_us.saturating_sub(self.cut_off_us) >= since_us
    }

    /// The most bytes with which a send may start. `None`: it may not start. Call [`Places::age`] before.
    pub(crate) fn may_start(&self, is_in_doubt: bool) -> Option<usize> {
        let limits = &self.limits;
        let (is_free, bytes, places, most) = if is_in_doubt && self.has_spare() {
            (self.spare < limits.spare, self.spare_bytes, limits.spare, limits.spare_bytes)
        } else {
            let may_half = !is_in_doubt || self.in_doubt < self.half();
            (may_half && self.young < limits.young, self.young_bytes, limits.young, limits.young_bytes)
        };
        is_free.then(|| if bytes < most { usize::MAX } else { most / places })
    }

    pub(crate) fn limits(&self) -> PlaceLimits {
        self.limits
    }

    /// How many calls have not returned.
    pub(crate) fn taken(&self) -> usize {
        self.taken.len()
    }

    /// None is taken, and the limits are the same.
    pub(crate) fn like(&self) -> Self {
        Self::new(self.limits)
    }

    /// How many more sends of this kind may start, but for their bytes.
    pub(crate) fn free(&self, is_in_doubt: bool) -> usize {
        let PlaceLimits { young, spare, .. } = self.limits;
        if !is_in_doubt {
            return young.saturating_sub(self.young);
        }
        if self.has_spare() {
            return spare.saturating_sub(self.spare);
        }
        self.half().saturating_sub(self.in_doubt).min(young.saturating_sub(self.young))
    }

    /// How many places keys in doubt may have, if there are no spare ones.
    fn half(&self) -> usize {
        (self.that_return() / 2).max(1)
    }

    /// Ordinary places that a sink without spare ones has, without those that a call keeps after its cut-off.
    fn that_return(&self) -> usize {
        self.limits.young.saturating_sub(self.cut_off - self.hanging)
    }

    /// Whether keys that are not in doubt go first. Call [`Places::age`] before.
    pub(crate) fn others_go_first(&self) -> bool {
        if self.has_spare() {
            return false; // keys in doubt take no place from others
        }
        self.sharing.others_go_first(self.now_us, || {
            let young_us = self.young_us();
            let is_slow = |place: &&Place| self.now_us.saturating_sub(place.began_us) >= young_us;
            let open = self.young_line.iter().filter_map(|number| self.taken.get(number)).take_while(is_slow).count();
            let slow = open + self.sharing.ended_just_now(self.now_us, young_us);
            slow > 0 && slow + self.in_doubt >= self.half()
        })
    }

    /// Whether a send with this many bytes may move to a spare place.
    fn may_move(&self, bytes: usize) -> bool {
        let PlaceLimits { spare, spare_bytes, .. } = self.limits;
        let has_room =
            self.spare == 0 || self.spare_bytes + bytes <= spare_bytes || bytes <= spare_bytes / spare.max(1);
        self.spare < spare && has_room
    }

    pub(crate) fn has_spare(&self) -> bool {
        self.limits.spare > 0
    }

    /// A key in doubt could start, and another key goes first.
    pub(crate) fn pass_over(&mut self) {
        self.sharing.pass_over(self.now_us);
    }

    pub(crate) fn take(&mut self, number: u64, now_us: u64, bytes: usize, is_in_doubt: bool) {
        if is_in_doubt {
            self.sharing.started_in_doubt(now_us);
        }
        self.in_doubt += usize::from(is_in_doubt);
        let takes = if is_in_doubt && self.has_spare() { Takes::Spare } else { Takes::Ordinary };
        if takes == Takes::Spare {
            self.spare += 1;
            self.spare_bytes += bytes;
        } else {
            if self.young_line.len() > 2 * self.taken.len() + 64 {
                self.young_line.retain(|number| self.taken.contains_key(number)); // ended sends behind one still open
            }
            if !is_in_doubt {
                self.young_line.push_back(number);
            }
            self.young += 1;
            self.young_bytes += bytes;
        }
        self.taken.insert(number, Place { began_us: now_us, bytes, is_in_doubt, takes, is_cut_off: false });
    }

    /// Moves sends that are not young any more out of ordinary places, while spare places are free.
    pub(crate) fn age(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.drop_ended();
        while self.next_free_us().is_some_and(|at_us| at_us <= now_us)
            && let Some(number) = self.young_line.pop_front()
            && let Some(place) = self.taken.get_mut(&number)
        {
            place.takes = Takes::Spare;
            self.young -= 1;
            self.young_bytes -= place.bytes;
            self.spare += 1;
            self.spare_bytes += place.bytes;
        }
    }

    /// When [`Places::age`] can next free an ordinary place.
    pub(crate) fn next_free_us(&mut self) -> Option<u64> {
        if !self.has_spare() {
            return None;
        }
        self.drop_ended();
        let first = &self.taken[self.young_line.front()?];
        self.may_move(first.bytes).then(|| first.began_us.saturating_add(self.young_us()))
    }

    fn drop_ended(&mut self) {
        while self.young_line.front().is_some_and(|number| !self.taken.contains_key(number)) {
            self.young_line.pop_front();
        }
    }

    /// The call was cut off, and has not returned.
    pub(crate) fn hangs(&mut self, number: u64, now_us: u64) {
        let has_spare = self.has_spare();
        let Some(place) = self.taken.get_mut(&number).filter(|it| !it.is_cut_off) else { return };
        place.is_cut_off = true;
        self.cut_off += 1;
        self.cut_off_us = now_us;
        self.in_doubt -= usize::from(place.is_in_doubt);
        if has_spare {
            return; // the call keeps its place
        }
        if !place.is_in_doubt {
            self.young_line.retain(|it| *it != number); // its key is in doubt now
            self.sharing.slow_ended(now_us, self.limits.young);
        }
        if self.hanging < self.limits.hanging {
            place.takes = Takes::None;
            self.hanging += 1;
            self.young -= 1;
            self.young_bytes -= place.bytes;
        }
    }

    /// The send has ended. Returns whether it was slow.
    pub(crate) fn leave(&mut self, number: u64, now_us: u64) -> bool {
        let Some(place) = self.taken.remove(&number) else { return false };
        let took_us = now_us.saturating_sub(place.began_us);
        let is_slow = took_us > self.young_us();
        if place.is_in_doubt && !self.has_spare() && self.that_return() <= 1 {
            self.sharing.left_only_place(now_us, took_us);
        }
        if place.is_cut_off {
            self.cut_off -= 1;
        } else if place.is_in_doubt {
            self.in_doubt -= 1;
        } else if is_slow && !self.has_spare() {
            self.sharing.slow_ended(now_us, self.limits.young);
        }
        match place.takes {
            Takes::None => self.hanging -= 1,
            Takes::Ordinary => {
                self.young -= 1;
                self.young_bytes -= place.bytes;
            }
            Takes::Spare => {
                self.spare -= 1;
                self.spare_bytes -= place.bytes;
            }
        }
        is_slow
    }

    /// Notes how long the send of an accepted message took. If there are spare places, a first one that is slow does not say
    /// what is usual. Without them a key counts as in doubt if it is slow, and has half of the places.
    pub(crate) fn note_duration(&mut self, duration_us: u64) {
        let duration_us = duration_us as f64;
        if self.usual_us == 0.0 {
            let most = if self.has_spare() { YOUNG_US as f64 / YOUNG_TIMES } else { f64::MAX };
            self.usual_us = duration_us.clamp(1.0, most);
        } else if duration_us > self.usual_us {
            self.usual_us = duration_us.min(self.usual_us * STEP_UP);
        } else {
            self.usual_us = duration_us.max(self.usual_us / STEP_DOWN).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(young: usize, spare: usize) -> Places {
        Places::new(PlaceLimits { young, spare, hanging: 0, ..PlaceLimits::NONE })
    }

    impl Places {
        /// Whether a send of any size may start.
        fn may(&self, is_in_doubt: bool) -> bool {
            self.may_start(is_in_doubt) == Some(usize::MAX)
        }
    }

    #[test]
    fn a_send_that_is_not_young_any_more_leaves_its_ordinary_place__d6() {
        let mut places = places(2, 1);
        places.take(0, 0, 10, false);
        places.take(1, 50_000, 10, false);
        assert!(!places.may(false) && places.may(true));
        assert_eq!(places.next_free_us(), Some(100_000));
        places.age(99_999);
        assert!(!places.may(false));
        places.age(100_000);
        assert!(places.may(false), "the first one is in the spare place");
        assert!(!places.may(true), "there is no other");
        assert_eq!((places.spare_taken(), places.next_free_us()), (1, None));
        assert!(places.leave(0, 200_000), "it was slow");
        assert!(!places.leave(1, 60_000));
        assert!(places.are_free());
    }

    #[test]
    fn a_key_in_doubt_starts_only_in_a_spare_place__d6() {
        let mut places = places(2, 2);
        places.take(0, 0, 10, true);
        places.take(1, 0, 10, true);
        assert!(places.may(false) && !places.may(true), "the ordinary places are free");
        places.take(2, 0, 10, false);
        places.take(3, 0, 10, false);
        places.age(100_000);
        assert!(!places.may(false), "no spare place is free for those that are old");
        places.leave(0, 100_000);
        places.age(100_000);
        assert!(places.may(false) && !places.may(true));
    }

    #[test]
    fn without_spare_places_keys_in_doubt_get_half_of_the_others__d6() {
        for (young, half) in [(1, 1), (2, 1), (5, 2), (8, 4)] {
            let mut places = places(young, 0);
            for number in 0..half {
                assert!(places.may(true), "{young}");
                places.take(number, 0, 0, true);
            }
            assert!(!places.may(true), "{young}");
            assert_eq!(places.may(false), half < young as u64);
            places.age(u64::MAX);
            assert!(!places.may(true), "none of them leaves its place");
        }
    }

    #[test]
    fn spare_places_have_bytes_of_their_own__d8() {
        let limits = PlaceLimits { young: 10, spare: 10, young_bytes: 30, spare_bytes: 20, hanging: 0 };
        let mut places = Places::new(limits);
        (0..3).for_each(|number| places.take(number, 0, 10, false));
        assert!(!places.may(false) && places.may(true));
        places.age(100_000);
        assert!(places.may(false), "two of them are in spare places");
        assert!(!places.may(true));
        places.take(3, 100_000, 1_000, false);
        assert!(!places.may(false));
        for number in 0..4 {
            places.leave(number, 100_000);
        }
        assert!(places.may(false) && places.may(true) && places.are_free());
    }

    #[test]
    fn a_call_that_was_cut_off_keeps_its_place_but_a_few_of_a_sink_without_spare_ones__d6() {
        let mut kept = places(1, 0);
        kept.take(0, 0, 0, false);
        kept.hangs(0, 0);
        assert!(!kept.may(false));
        let mut replaced = Places::new(PlaceLimits { hanging: 1, ..places(1, 0).limits });
        for number in [0, 1] {
            replaced.take(number, 0, 0, false);
            replaced.hangs(number, 0);
            assert_eq!(replaced.may(false), number == 0);
        }
        replaced.leave(1, 0);
        assert!(replaced.may(false));
        replaced.leave(0, 0);
        replaced.take(2, 0, 0, false);
        assert!(!replaced.may(false));
    }

    #[test]
    fn a_destination_that_always_takes_long_has_young_sends_that_take_long__d6() {
        let mut places = places(1, 1);
        assert_eq!(places.young_us(), 100_000);
        (0..1_000).for_each(|_| places.note_duration(300_000));
        assert_eq!(places.young_us(), 3_000_000);
        (0..1_000).for_each(|_| places.note_duration(10));
        assert_eq!(places.young_us(), 100_000);
    }

    /// Otherwise a single ordinary place is taken by the next send that hangs for half a minute.
    #[test]
    fn a_slow_send_that_is_the_first_does_not_say_what_is_usual__d6() {
        for (spare, young_us) in [(8, YOUNG_US), (0, 30_000_000)] {
            let mut places = places(1, spare);
            places.note_duration(3_000_000);
            assert_eq!(places.young_us(), young_us);
        }
    }

    #[test]
    fn what_one_of_ten_needs_is_usual__d6() {
        let mut places = places(1, 1);
        for (fast, young_s) in [(0, 30), (2, 0)] {
            for number in 0..10_000 {
                places.note_duration(if number % 10 < fast { 5_000 } else { 3_000_000 });
            }
            assert_eq!(places.young_us() / 1_000_000, young_s, "{fast} of ten are fast");
        }
    }

    #[test]
    fn a_small_message_starts_though_the_bytes_are_taken__d6_d8() {
        let limits = PlaceLimits { young: 10, spare: 4, young_bytes: 100, spare_bytes: 80, hanging: 0 };
        let mut places = Places::new(limits);
        places.take(0, 0, 100, false);
        places.take(1, 0, 80, true);
        assert_eq!((places.may_start(false), places.may_start(true)), (Some(10), Some(20)));
        (2..11).for_each(|number| places.take(number, 0, 10, false));
        (11..14).for_each(|number| places.take(number, 0, 20, true));
        assert_eq!((places.may_start(false), places.may_start(true)), (None, None));
    }

    /// Of eight places, a call has one for ten minutes.
    #[test]
    fn a_long_call_takes_one_place_of_those_that_keys_in_doubt_may_have__d6() {
        let mut places = places(8, 0);
        places.take(0, 0, 0, false);
        places.age(600_000_000);
        for number in 1..4 {
            assert!(!places.others_go_first());
            places.take(number, 600_000_000, 0, true);
        }
        assert!(places.others_go_first());
        places.leave(0, 600_000_000);
        assert!(places.others_go_first(), "the next one may be as slow");
        places.age(600_200_000);
        assert!(!places.others_go_first() && places.may(true));
    }

    #[test]
    fn the_only_place_is_shared_by_time__d6() {
        let mut places = places(2, 0);
        places.take(0, 0, 0, false);
        places.hangs(0, 0); // and never returns
        places.take(1, 0, 0, true);
        places.leave(1, 10_000_000);
        for (now_us, go_first) in [(10_000_000, true), (19_999_999, true), (20_000_000, false)] {
            places.age(now_us);
            assert_eq!(places.others_go_first(), go_first, "{now_us}");
        }
    }

    #[test]
    fn whatever_starts_and_ends_the_counts_come_back_to_nothing__d6() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = PlaceLimits {
                young: random.usize(1..6),
                spare: random.usize(0..4),
                young_bytes: random.usize(1..100),
                spare_bytes: random.usize(1..100),
                hanging: random.usize(0..3),
            };
            let (mut places, mut open, mut now_us) = (Places::new(limits), Vec::new(), 0);
            for number in 0..400 {
                now_us += random.u64(0..60_000);
                places.age(now_us);
                let is_in_doubt = random.bool();
                if let Some(most) = places.may_start(is_in_doubt) {
                    places.take(number, now_us, random.usize(0..50).min(most), is_in_doubt);
                    open.push(number);
                }
                if random.u8(0..4) == 0 && !open.is_empty() {
                    places.hangs(open[random.usize(0..open.len())], now_us);
                }
                if random.bool() && !open.is_empty() {
                    places.leave(open.swap_remove(random.usize(0..open.len())), now_us);
                }
                let most = limits.young + limits.spare + if limits.spare == 0 { limits.hanging } else { 0 };
                assert!(open.len() <= most && places.young <= limits.young && places.spare <= limits.spare);
                assert!(places.young_bytes <= 2 * limits.young_bytes + 50);
                assert!(places.spare_bytes <= 2 * limits.spare_bytes + 50);
                assert_eq!(places.cut_off, places.taken.values().filter(|it| it.is_cut_off).count());
                assert!(places.half() <= limits.young);
                assert!(places.young_line.len() <= 2 * most + 66);
            }
            for number in open {
                places.leave(number, now_us);
            }
            let Places { young, spare, in_doubt, hanging, cut_off, young_bytes, spare_bytes, .. } = places;
            assert_eq!([young, spare, in_doubt, hanging, cut_off, young_bytes, spare_bytes], [0; 7], "seed {seed}");
        }
    }
}
