//! Places for sends: ordinary ones for young sends, spare ones for sends that are slow or in doubt (rules D6, D18).
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
//! - Without spare places, every send keeps its ordinary place. Keys in doubt get at most half of these places, and none
//!   during a slow first contact: while a send of another key is not young any more, messages of such keys go first. So
//!   the first contact with many keys that hang is over soon. One key in doubt goes out every five minutes all the same.
//! - After a cut-off, the call keeps its place until it returns. A sink without spare places may have
//!   [`PlaceLimits::hanging`] such calls beside its places.
//! - Ordinary and spare places have separate limits for bytes. A send may start while the limit is not reached, so one
//!   send may go over it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// A send is young for at least this time.
const YOUNG_US: u64 = 100_000;
/// A send is young for at least this number of usual durations.
const YOUNG_TIMES: f64 = 10.0;
/// Keys in doubt wait at most this long for the end of a slow first contact.
const LONGEST_PASSED_OVER_US: u64 = 300_000_000;
/// How much one duration moves the usual duration. The usual duration is about the median.
const STEP: f64 = 1.05;

/// How many sends there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Ordinary places.
    pub young: usize,
    /// Spare places.
    pub spare: usize,
    /// Bytes of the sends in ordinary places, without the sends of keys in doubt if there are spare places.
    pub young_bytes: usize,
    /// Bytes of the sends in spare places.
    pub spare_bytes: usize,
    /// Calls that were cut off and have not returned. They come beside the ordinary places, if there are no spare ones.
    pub hanging: usize,
}

impl PlaceLimits {
    pub(crate) const SPARE_BYTES: usize = 64 << 20;

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
    young_bytes: usize,
    spare_bytes: usize,
    usual_us: f64,
    /// When [`Places::age`] ran last.
    now_us: u64,
    /// When the last slow send ended whose key was not in doubt.
    slow_ended_us: Option<u64>,
    /// Since when other keys go first.
    passed_over_us: Option<u64>,
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
            young_bytes: 0,
            spare_bytes: 0,
            usual_us: 0.0,
            now_us: 0,
            slow_ended_us: None,
            passed_over_us: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn limits(&self) -> PlaceLimits {
        self.limits
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

    /// Whether a send may start. Call [`Places::age`] before.
    pub(crate) fn may_start(&self, is_in_doubt: bool) -> bool {
        if is_in_doubt && self.has_spare() {
            return self.spare < self.limits.spare && self.spare_bytes < self.limits.spare_bytes;
        }
        let may_half = !is_in_doubt || self.in_doubt < (self.limits.young / 2).max(1);
        may_half && self.young < self.limits.young && self.young_bytes < self.limits.young_bytes
    }

    /// Whether keys that are not in doubt go first, because the first contact with one of them is slow, or was just now.
    /// Call [`Places::age`] before.
    pub(crate) fn is_first_contact_slow(&self) -> bool {
        if self.has_spare() {
            return false; // keys in doubt take no place from others
        }
        if self.passed_over_us.is_some_and(|since_us| self.now_us >= since_us.saturating_add(LONGEST_PASSED_OVER_US)) {
            return false;
        }
        let was_slow = |since_us: u64| self.now_us.saturating_sub(since_us) >= self.young_us();
        let first = self.young_line.iter().find_map(|number| self.taken.get(number));
        first.is_some_and(|first| was_slow(first.began_us)) || self.slow_ended_us.is_some_and(|at_us| !was_slow(at_us))
    }

    /// Whether a send with this many bytes may move to a spare place.
    fn may_move(&self, bytes: usize) -> bool {
        self.spare < self.limits.spare && (self.spare == 0 || self.spare_bytes + bytes <= self.limits.spare_bytes)
    }

    pub(crate) fn has_spare(&self) -> bool {
        self.limits.spare > 0
    }

    /// A key in doubt could start, and another key goes first.
    pub(crate) fn pass_over(&mut self) {
        self.passed_over_us.get_or_insert(self.now_us);
    }

    pub(crate) fn take(&mut self, number: u64, now_us: u64, bytes: usize, is_in_doubt: bool) {
        if is_in_doubt {
            self.passed_over_us = None;
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
        self.taken.insert(number, Place { began_us: now_us, bytes, is_in_doubt, takes });
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
    pub(crate) fn hangs(&mut self, number: u64) {
        if !self.has_spare() {
            self.young_line.retain(|it| *it != number); // its key is in doubt now
            self.slow_ended_us = Some(self.now_us);
        }
        if self.has_spare() || self.hanging >= self.limits.hanging {
            return; // the call keeps its place
        }
        if let Some(place) = self.taken.get_mut(&number).filter(|it| it.takes != Takes::None) {
            place.takes = Takes::None;
            self.hanging += 1;
            self.young -= 1;
            self.young_bytes -= place.bytes;
            self.in_doubt -= usize::from(place.is_in_doubt);
        }
    }

    /// The send has ended. Returns whether it was slow.
    pub(crate) fn free(&mut self, number: u64, now_us: u64) -> bool {
        let Some(place) = self.taken.remove(&number) else { return false };
        let is_slow = now_us.saturating_sub(place.began_us) > self.young_us();
        if is_slow && !place.is_in_doubt {
            self.slow_ended_us = Some(now_us);
        }
        if place.takes == Takes::None {
            self.hanging -= 1;
            return is_slow;
        }
        self.in_doubt -= usize::from(place.is_in_doubt);
        self.young -= usize::from(place.takes != Takes::Spare);
        if place.takes == Takes::Ordinary {
            self.young_bytes -= place.bytes;
        } else {
            self.spare -= 1;
            self.spare_bytes -= place.bytes;
        }
        is_slow
    }

    /// Notes how long the send of an accepted message took.
    pub(crate) fn note_duration(&mut self, duration_us: u64) {
        let duration_us = duration_us as f64;
        if self.usual_us == 0.0 {
            self.usual_us = duration_us.max(1.0);
        } else if duration_us > self.usual_us {
            self.usual_us *= STEP;
        } else {
            self.usual_us = (self.usual_us / STEP).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(young: usize, spare: usize) -> Places {
        Places::new(PlaceLimits { young, spare, hanging: 0, ..PlaceLimits::NONE })
    }

    #[test]
    fn a_send_that_is_not_young_any_more_leaves_its_ordinary_place__d6() {
        let mut places = places(2, 1);
        places.take(0, 0, 10, false);
        places.take(1, 50_000, 10, false);
        assert!(!places.may_start(false) && places.may_start(true));
        assert_eq!(places.next_free_us(), Some(100_000));
        places.age(99_999);
        assert!(!places.may_start(false));
        places.age(100_000);
        assert!(places.may_start(false), "the first one is in the spare place");
        assert!(!places.may_start(true), "there is no other");
        assert_eq!((places.spare_taken(), places.next_free_us()), (1, None));
        assert!(places.free(0, 200_000), "it was slow");
        assert!(!places.free(1, 60_000));
        assert!(places.are_free());
    }

    #[test]
    fn a_key_in_doubt_starts_only_in_a_spare_place__d6() {
        let mut places = places(2, 2);
        places.take(0, 0, 10, true);
        places.take(1, 0, 10, true);
        assert!(places.may_start(false) && !places.may_start(true), "the ordinary places are free");
        places.take(2, 0, 10, false);
        places.take(3, 0, 10, false);
        places.age(100_000);
        assert!(!places.may_start(false), "no spare place is free for those that are old");
        places.free(0, 100_000);
        places.age(100_000);
        assert!(places.may_start(false) && !places.may_start(true));
    }

    #[test]
    fn without_spare_places_keys_in_doubt_get_half_of_the_others__d6() {
        for (young, half) in [(1, 1), (2, 1), (5, 2), (8, 4)] {
            let mut places = places(young, 0);
            for number in 0..half {
                assert!(places.may_start(true), "{young}");
                places.take(number, 0, 0, true);
            }
            assert!(!places.may_start(true), "{young}");
            assert_eq!(places.may_start(false), half < young as u64);
            places.age(u64::MAX);
            assert!(!places.may_start(true), "none of them leaves its place");
        }
    }

    #[test]
    fn spare_places_have_bytes_of_their_own__d8() {
        let limits = PlaceLimits { young: 10, spare: 10, young_bytes: 30, spare_bytes: 20, hanging: 0 };
        let mut places = Places::new(limits);
        (0..3).for_each(|number| places.take(number, 0, 10, false));
        assert!(!places.may_start(false) && places.may_start(true));
        places.age(100_000);
        assert!(places.may_start(false), "two of them are in spare places");
        assert!(!places.may_start(true));
        places.take(3, 100_000, 1_000, false);
        assert!(!places.may_start(false));
        for number in 0..4 {
            places.free(number, 100_000);
        }
        assert!(places.may_start(false) && places.may_start(true) && places.are_free());
    }

    #[test]
    fn a_call_that_was_cut_off_keeps_its_place_but_a_few_of_a_sink_without_spare_ones__d6() {
        let mut kept = places(1, 0);
        kept.take(0, 0, 0, false);
        kept.hangs(0);
        assert!(!kept.may_start(false));
        let mut replaced = Places::new(PlaceLimits { hanging: 1, ..places(1, 0).limits() });
        for number in [0, 1] {
            replaced.take(number, 0, 0, false);
            replaced.hangs(number);
            assert_eq!(replaced.may_start(false), number == 0);
        }
        replaced.free(1, 0);
        assert!(replaced.may_start(false));
        replaced.free(0, 0);
        replaced.take(2, 0, 0, false);
        assert!(!replaced.may_start(false));
    }

    #[test]
    fn a_destination_that_always_takes_long_has_young_sends_that_take_long__d6() {
        let mut places = places(1, 1);
        assert_eq!(places.young_us(), 100_000);
        (0..1_000).for_each(|_| places.note_duration(300_000));
        assert!((2_800_000..=3_200_000).contains(&places.young_us()), "{}", places.young_us());
        (0..1_000).for_each(|_| places.note_duration(10));
        assert_eq!(places.young_us(), 100_000);
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
                if places.may_start(is_in_doubt) {
                    places.take(number, now_us, random.usize(0..50), is_in_doubt);
                    open.push(number);
                }
                if random.u8(0..4) == 0 && !open.is_empty() {
                    places.hangs(open[random.usize(0..open.len())]);
                }
                if random.bool() && !open.is_empty() {
                    places.free(open.swap_remove(random.usize(0..open.len())), now_us);
                }
                let most = limits.young + limits.spare + if limits.spare == 0 { limits.hanging } else { 0 };
                assert!(open.len() <= most && places.young <= limits.young && places.spare <= limits.spare);
                assert!(places.young_line.len() <= 2 * most + 66);
            }
            for number in open {
                places.free(number, now_us);
            }
            let left =
                [places.young, places.spare, places.in_doubt, places.hanging, places.young_bytes, places.spare_bytes];
            assert_eq!(left, [0; 6], "seed {seed}");
        }
    }
}
