//! Tests of the window against a plain model: the messages in memory, the rows in the store, and the order of sending
//! (D4, D8).

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

const LAST: i64 = i64::MAX;

fn row(due_ms: i64, seq: i64, lane: Option<i64>, size: u32) -> WaitingRow {
    WaitingRow::untried(due_ms, seq, lane, size)
}

fn body(lane: Option<i64>, seq: i64) -> Body {
    Body::new(lane.map(|lane| lane.to_string()).as_deref(), &seq.to_string(), b"1", true)
}

fn opened(bounds: Bounds) -> Window {
    let mut window = Window::new(bounds, false);
    window.share_mut(0).cursor = Some((1_000, LAST));
    window
}

fn add(window: &mut Window, row: WaitingRow) -> Option<Slot> {
    window.admit(row, 0, Some(body(row.lane, row.seq)), &mut Vec::new())
}

fn of_lane(window: &Window, number: i64) -> &Lane {
    window.lane(window.lane_numbers[&number])
}

/// Takes the lane's first message, as if its time had come.
fn take(window: &mut Window, lane: u32) -> Slot {
    let (_, first) = window.lane(lane).first().expect("a message waits");
    window.entry_mut(first).state = State::Waiting;
    assert_eq!(window.take(lane), Some(first));
    window.entry_mut(first).state = State::Sending;
    first
}

fn end(window: &mut Window, slot: Slot, outcome: Outcome) {
    let seq = window.entry(slot).seq;
    window.end(slot, outcome);
    window.forget(seq);
}

#[test]
fn the_example_of_the_window_holds__d4_d8() {
    let mut window = opened(Bounds { lane_messages: 2, ..Bounds::default() });
    window.share_mut(0).cursor = Some((50, 9));
    for (due_ms, seq) in [(10, 1), (20, 2), (30, 3)] {
        add(&mut window, row(due_ms, seq, Some(1), 10));
    }
    assert_eq!((of_lane(&window, 1).more_from, window.len()), (Some((30, 3)), 2));
    assert_eq!(window.take_changed_lanes().collect::<Vec<_>>(), [(1, Some((30, 3)))]);
    let mut gone = Vec::new();
    assert!(window.admit(row(15, 10, Some(1), 10), 0, Some(body(Some(1), 10)), &mut gone).is_some());
    assert_eq!(gone.iter().map(|it| (it.due_ms, it.seq, it.was_near)).collect::<Vec<_>>(), [(20, 2, true)]);
    assert_eq!(window.find(2), None);
    assert_eq!(of_lane(&window, 1).more_from, Some((20, 2)));
    assert_eq!(window.take_changed_lanes().collect::<Vec<_>>(), [(1, Some((20, 2)))]);
}

/// After a restart, a message that keeps its place may be due after what was read, as the wall clock was set back.
#[test]
fn a_lane_that_was_left_after_the_cursor_is_refilled_once_the_cursor_is_there__d4_d8() {
    let mut window = opened(Bounds::default());
    window.keep_away(0, 1, (2_000, 1));
    window.come_back(window.lane_numbers[&1]);
    assert!(!window.share(0).has_needy_lanes(), "the writer would look for it again and again");
    assert_eq!(window.refill_from(0), None);
    window.share_mut(0).cursor = Some((3_000, LAST));
    assert!(window.share(0).has_needy_lanes());
    assert_eq!(window.refill_from(0), Some((vec![1], (2_000, 1))));
}

/// Its message waits in the store for its next attempt, and is due after all that will be read.
#[test]
fn a_lane_keeps_the_place_of_its_message_if_the_cursor_goes_back__d4() {
    let mut window = opened(Bounds::default());
    window.keep_away(0, 1, (500, 1));
    window.set_back(0, (400, 2));
    let lane = window.lane_numbers[&1];
    assert!(window.read_ahead(0, &[row(450, 3, Some(1), 10)], 460, true).is_empty(), "it would pass the other");
    window.come_back(lane);
    window.tidy(lane);
    assert_eq!(of_lane(&window, 1).more_from, Some((450, 3)));
}

/// Keys that fail again and again send messages back in every moment.
#[test]
fn messages_that_go_back_keep_no_others_in_the_store__d6_d8() {
    let mut window = opened(Bounds::default());
    let slot = add(&mut window, row(900, 1, Some(1), 10)).unwrap();
    window.entry_mut(slot).state = State::Waiting;
    let bad = window.lane_numbers[&1];
    window.clear_away(bad);
    window.come_back(bad);
    window.keep_away(0, 2, (500, 2));
    window.come_back(window.lane_numbers[&2]);
    assert!(window.has_leaving());
    let (numbers, start) = window.refill_from(0).unwrap();
    assert_eq!(numbers, [2, 1]);
    let refilled = window.refill(0, &numbers, &[row(500, 2, Some(2), 10)], start, (1_000, LAST));
    assert_eq!(refilled.len(), 1, "the other lane");
    assert_eq!(of_lane(&window, 1).more_from, Some((900, 1)), "its row is not in the store");
    assert_eq!(window.read_ahead(0, &[row(2_000, 3, None, 10)], 3_000, true).len(), 1);
    assert_eq!(window.share(0).cursor, Some((3_000, LAST)));
    window.set_back(0, (700, 4)); // now the message that goes back is after the cursor
    assert!(window.read_ahead(0, &[row(2_000, 5, None, 10)], 3_000, true).is_empty());
    assert!(window.share(0).cursor < Some((700, 4)));
}

#[test]
fn a_lane_that_was_left_empty_does_not_take_a_new_one_with_it__d4() {
    let mut window = opened(Bounds::default());
    let first = add(&mut window, row(10, 1, Some(1), 10)).unwrap();
    let second = add(&mut window, row(20, 2, Some(1), 10)).unwrap();
    let lane = window.lane_numbers[&1];
    take(&mut window, lane);
    window.end(first, Outcome::Delivered); // not committed
    window.end(second, Outcome::Cancelled);
    window.forget(2);
    let third = add(&mut window, row(30, 3, Some(1), 10)).unwrap();
    window.forget(1);
    let fourth = add(&mut window, row(40, 4, Some(1), 10)).unwrap();
    assert_eq!(window.entry(third).lane, window.entry(fourth).lane, "one key has two lanes");
}

#[test]
fn a_lane_waits_until_all_that_ended_without_being_delivered_is_committed__d7() {
    let mut window = opened(Bounds::default());
    let slots: Vec<Slot> = (1..=3).map(|seq| add(&mut window, row(seq, seq, Some(1), 10)).unwrap()).collect();
    for &slot in &slots {
        window.entry_mut(slot).state = State::Waiting;
    }
    let lane = window.lane_numbers[&1];
    window.end(slots[0], Outcome::Cancelled);
    window.end(slots[1], Outcome::Dead);
    assert_eq!(window.take(lane), None);
    assert_eq!(window.forget(1), None);
    assert_eq!(window.take(lane), None);
    assert_eq!(window.forget(2), Some(lane));
    assert_eq!(window.take(lane), Some(slots[2]));
    window.end(slots[2], Outcome::Delivered);
    assert_eq!(window.forget(3), None, "a lane does not wait for the commit of what was delivered");
    assert!(window.lane_numbers.is_empty());
}

#[test]
fn after_the_cursor_went_back_nothing_overtakes_in_a_key__d4() {
    let mut window = opened(Bounds { messages: 4, ..Bounds::default() });
    for (due_ms, seq, lane) in [(10, 1, Some(1)), (30, 2, Some(1)), (31, 3, None), (32, 4, None)] {
        add(&mut window, row(due_ms, seq, lane, 10));
    }
    add(&mut window, row(5, 5, Some(2), 10)); // no room: the cursor and the latest messages go back
    assert_eq!(window.share(0).cursor, Some((32, 3)));
    assert!(window.was_full);
    let is_in = add(&mut window, row(20, 6, Some(1), 10)).is_some();
    let later = window.slots().any(|(_, it)| it.lane == Some(window.lane_numbers[&1]) && it.position() > (20, 6));
    assert!(is_in || !later, "(30, 2) would go out before (20, 6)");
}

#[test]
fn what_is_on_its_way_behind_a_cursor_that_went_back_is_to_be_marked__d5() {
    let mut window = opened(Bounds { messages: 3, ..Bounds::default() });
    window.read_ahead(0, &[row(30, 1, Some(1), 10)], 1_000, true); // it has a row in the store
    let lane = window.lane_numbers[&1];
    take(&mut window, lane);
    add(&mut window, row(20, 2, None, 10));
    add(&mut window, row(21, 3, None, 10));
    assert_eq!(window.take_uncovered(), []);
    add(&mut window, row(5, 4, None, 10));
    assert_eq!(window.share(0).cursor, Some((21, 2)));
    assert_eq!(window.take_uncovered(), [(30, 1)]);
    assert_eq!(window.take_uncovered(), [], "once");
}

#[test]
fn what_waits_for_a_place_behind_a_cursor_that_went_back_is_to_be_marked_once_it_has_a_row__d5() {
    let mut window = opened(Bounds { messages: 2, ..Bounds::default() });
    let ready = [(30, 1), (31, 2)].map(|(due_ms, seq)| add(&mut window, row(due_ms, seq, None, 10)).unwrap());
    for slot in ready {
        window.entry_mut(slot).state = State::Ready;
    }
    add(&mut window, row(5, 3, None, 10));
    assert!(window.share(0).cursor < Some((30, 1)));
    assert_eq!(window.take_uncovered(), [], "they are near");
    window.hold_near(ready[0]);
    assert_eq!(window.take_uncovered(), [(30, 1)]);
}

#[test]
fn a_near_one_without_a_place_goes_back_to_the_store_in_the_next_transaction__d8() {
    let mut window = opened(Bounds { messages: 3, ..Bounds::default() });
    let near = add(&mut window, row(30, 1, Some(1), 10)).unwrap();
    let lane = window.lane_numbers[&1];
    take(&mut window, lane);
    add(&mut window, row(20, 2, None, 10));
    add(&mut window, row(21, 3, None, 10));
    add(&mut window, row(5, 4, None, 10));
    assert!(window.share(0).cursor < Some((30, 1)));
    window.put_back(near);
    assert_eq!(window.entry(near).state, State::Leaving);
    let left: Vec<_> = window.take_leaving().into_iter().map(|it| (it.seq, it.was_near)).collect();
    assert_eq!(left, [(1, true)]);
    assert_eq!(window.find(1), None);
    assert!(!window.lane_numbers.contains_key(&1), "an empty lane is left");
}

#[test]
fn nothing_is_read_ahead_past_a_message_that_goes_back_to_the_store__d8() {
    let mut window = opened(Bounds { messages: 3, ..Bounds::default() });
    let near = add(&mut window, row(30, 1, None, 10)).unwrap();
    window.entry_mut(near).state = State::Ready;
    add(&mut window, row(20, 2, None, 10));
    add(&mut window, row(21, 3, None, 10));
    add(&mut window, row(5, 4, None, 10));
    for seq in [2, 4] {
        let slot = window.find(seq).unwrap();
        end(&mut window, slot, Outcome::Delivered);
    }
    let cursor = window.share(0).cursor;
    window.put_back(near); // while the writer reads ahead
    assert!(window.read_ahead(0, &[row(21, 3, None, 10)], 1_000, true).is_empty());
    assert_eq!(window.share(0).cursor, cursor, "(30, 1) would be behind the cursor, and not in memory");
    assert_eq!(window.take_leaving().len(), 1);
    assert_eq!(window.read_ahead(0, &[row(21, 3, None, 10), row(30, 1, None, 10)], 1_000, true).len(), 1);
    assert_eq!(window.share(0).cursor, Some((21, 3)), "there is no room for more");
}

#[test]
fn what_comes_between_the_cursor_and_the_rest_of_a_lane_is_not_lost__d4() {
    let mut window = opened(Bounds { messages: 6, lane_messages: 2, ..Bounds::default() });
    let mut rows = BTreeMap::new();
    let admit = |window: &mut Window, rows: &mut BTreeMap<Position, WaitingRow>, it: WaitingRow| {
        let mut gone = Vec::new();
        if window.admit(it, 0, Some(body(it.lane, it.seq)), &mut gone).is_none() {
            rows.insert((it.due_ms, it.seq), it);
        }
        for it in gone.iter().filter(|it| it.was_near) {
            let lane = it.body.as_ref().unwrap().key().map(|key| key.parse().unwrap());
            rows.insert((it.due_ms, it.seq), row(it.due_ms, it.seq, lane, it.size));
        }
    };
    for (due_ms, seq, lane) in [
        (10, 1, Some(1)),
        (20, 2, Some(1)),
        (30, 3, Some(1)),
        (40, 4, None),
        (40, 5, None),
        (40, 6, None),
        (40, 7, None),
    ] {
        admit(&mut window, &mut rows, row(due_ms, seq, lane, 10));
    }
    admit(&mut window, &mut rows, row(5, 8, Some(2), 10)); // no room: the cursor goes back
    admit(&mut window, &mut rows, row(25, 9, Some(1), 10));
    for seq in 4..=8 {
        if let Some(slot) = window.find(seq) {
            end(&mut window, slot, Outcome::Delivered);
        }
    }
    let mut out = Vec::new();
    for _ in 0..20 {
        load(&mut window, &rows, 1_000, usize::MAX);
        let Some(lane) = window.lane_numbers.get(&1).copied().filter(|lane| window.lane(*lane).len() > 0) else {
            continue;
        };
        let slot = take(&mut window, lane);
        let position = window.entry(slot).position();
        out.push(position);
        rows.remove(&position);
        end(&mut window, slot, Outcome::Delivered);
    }
    assert_eq!(out, [(10, 1), (20, 2), (25, 9), (30, 3)]);
}

/// Does the loader's work, with a map as the store. `scan`: how many rows it reads at a time.
fn load(window: &mut Window, rows: &BTreeMap<Position, WaitingRow>, until_ms: i64, scan: usize) {
    window.was_full = false;
    if let Some((numbers, start)) = window.refill_from(0) {
        let cursor = window.share(0).cursor.unwrap();
        let between: Vec<WaitingRow> =
            if start <= cursor { rows.range(start..=cursor).map(|(_, row)| *row).collect() } else { Vec::new() };
        let end = between.get(scan.saturating_sub(1)).map_or(cursor, |row| (row.due_ms, row.seq));
        let is_in =
            |row: &&WaitingRow| (row.due_ms, row.seq) <= end && row.lane.is_some_and(|lane| numbers.contains(&lane));
        let of_lanes: Vec<WaitingRow> = between.iter().filter(is_in).copied().collect();
        window.refill(0, &numbers, &of_lanes, start, end);
    }
    let cursor = window.share(0).cursor.unwrap();
    if window.has_room_ahead(0, 0) && cursor.0 <= until_ms {
        let after = rows.range((std::ops::Bound::Excluded(cursor), std::ops::Bound::Included((until_ms, LAST))));
        let some: Vec<WaitingRow> = after.map(|(_, row)| *row).take(scan).collect();
        window.read_ahead(0, &some, until_ms, some.len() < scan);
    }
}

#[test]
fn one_lane_does_not_outgrow_its_bytes_when_large_ones_come_before_small_ones__d8() {
    let mut window = opened(Bounds { lane_messages: 100, lane_bytes: 1_000, ..Bounds::default() });
    for seq in 1..100 {
        add(&mut window, row(500 + seq, seq, Some(1), 10));
    }
    for seq in 100..190 {
        add(&mut window, row(400 - seq, seq, Some(1), 500));
    }
    assert!(of_lane(&window, 1).size <= 1_000 && window.bytes() <= 1_000);
}

#[test]
fn what_is_being_accepted_leaves_less_room_for_messages_in_memory__d8() {
    let mut window = opened(Bounds { bytes: 1_000, ..Bounds::default() });
    window.budget.take(700); // 200 more than its part
    assert!((1..=8).all(|seq| add(&mut window, row(seq, seq, None, 100)).is_some()));
    assert!(add(&mut window, row(9, 9, None, 100)).is_none(), "it waits in the store");
    assert!(!window.budget.take(1), "and nothing more is accepted");
    window.budget.take(-200);
    assert!(add(&mut window, row(10, 10, None, 100)).is_none(), "the store has an earlier one");
    assert_eq!(window.read_ahead(0, &[row(9, 9, None, 100)], LAST, true).len(), 0, "it reads ahead up to four fifths");
    window.remove(0);
    window.remove(1);
    assert_eq!(window.read_ahead(0, &[row(9, 9, None, 100)], LAST, true).len(), 1);
}

#[test]
fn memory_does_not_outgrow_its_bytes_when_large_ones_come_before_small_ones__d8() {
    let mut window = opened(Bounds { messages: 100, bytes: 1_000, ..Bounds::default() });
    for lane in 0..10 {
        for seq in 1..11 {
            add(&mut window, row(500 + seq, 100 * lane + seq, Some(lane), 10));
        }
    }
    for lane in 0..10 {
        for seq in 11..21 {
            add(&mut window, row(400 - seq, 100 * lane + seq, Some(lane), 500));
        }
    }
    assert!(window.bytes() <= 1_000);
    assert!(window.len() > 1);
}

#[test]
fn one_message_is_taken_whatever_its_size__d8() {
    let mut window = opened(Bounds { messages: 1, bytes: 10, lane_messages: 1, lane_bytes: 10 });
    assert!(add(&mut window, row(20, 1, Some(1), 500)).is_some());
    assert!(add(&mut window, row(20, 2, Some(2), 5)).is_none());
    assert!(add(&mut window, row(10, 3, Some(2), 500)).is_some(), "it comes before, and takes the place");
    assert_eq!(window.len(), 1);
    assert!(window.read_ahead(0, &[row(2_000, 4, None, 500)], 3_000, true).is_empty());
}

#[test]
fn reading_ahead_leaves_a_fifth_for_what_comes_later__d8() {
    let mut window = opened(Bounds { messages: 10, ..Bounds::default() });
    window.share_mut(0).cursor = Some((0, 0));
    let rows: Vec<WaitingRow> = (1..=20).map(|seq| row(seq, seq, None, 10)).collect();
    assert_eq!(window.read_ahead(0, &rows, 100, true).len(), 8);
    assert!(window.was_full);
    assert_eq!(window.share(0).cursor, Some((8, 8)));
    assert!(add(&mut window, row(3, 21, None, 10)).is_some());
}

#[test]
fn cancelled_messages_behind_one_that_stays_are_not_kept_in_memory__d8() {
    let mut window = opened(Bounds::default());
    window.share_mut(0).cursor = Some((10_000, LAST));
    add(&mut window, row(1, 1, Some(1), 10));
    for seq in 2..2_000 {
        let slot = add(&mut window, row(seq, seq, Some(1), 10)).unwrap();
        end(&mut window, slot, Outcome::Cancelled);
    }
    assert_eq!((window.len(), of_lane(&window, 1).len(), window.entries.len()), (1, 1, 2));
}

#[test]
fn a_lane_goes_when_the_rest_of_it_was_cancelled_in_the_store__d8() {
    let mut window = opened(Bounds { lane_messages: 1, ..Bounds::default() });
    add(&mut window, row(1, 1, Some(1), 10));
    add(&mut window, row(2, 2, Some(1), 10));
    let lane = window.lane_numbers[&1];
    let slot = take(&mut window, lane);
    end(&mut window, slot, Outcome::Delivered);
    load(&mut window, &BTreeMap::new(), 1_000, 100); // the second message was cancelled meanwhile
    assert!(window.lane_numbers.is_empty());
    let changed: Vec<_> = window.take_changed_lanes().collect();
    assert_eq!(changed, [(1, None)], "after a crash nothing of it is left out");
}

/// The window, the store, and the expected messages. It changes by one event at a time.
struct World {
    random: Rng,
    window: Window,
    bounds: Bounds,
    is_global: bool,
    /// All open messages.
    open: BTreeMap<Position, WaitingRow>,
    /// The open messages with a row in the store.
    rows: BTreeMap<Position, WaitingRow>,
    in_flight: Vec<Slot>,
    over: Vec<Position>,
    out: Vec<(Option<i64>, Position)>,
    seq: i64,
    now_ms: i64,
}

impl World {
    fn below(&mut self, end: i64) -> i64 {
        self.random.i64(0..end)
    }

    fn admit(&mut self) {
        self.seq += 1;
        let lane = [None, Some(1), Some(1), Some(2), Some(3)][self.below(5) as usize];
        let it = row(self.now_ms + self.below(80) - 20, self.seq, lane, self.below(39) as u32 + 1);
        let position = (it.due_ms, it.seq);
        self.open.insert(position, it);
        let mut gone = Vec::new();
        let slot = self.window.admit(it, 0, Some(body(it.lane, it.seq)), &mut gone);
        if slot.is_none() {
            self.rows.insert(position, it);
        }
        self.write(&gone);
        if let Some(slot) = slot {
            assert!(self.window.get(slot, it.seq).is_some_and(|entry| entry.is_near));
        }
    }

    fn write(&mut self, gone: &[Gone]) {
        for it in gone.iter().filter(|it| it.was_near) {
            let position = (it.due_ms, it.seq);
            assert!(self.rows.insert(position, self.open[&position]).is_none(), "{position:?} has a row");
        }
    }

    fn load(&mut self) {
        let scan = self.below(7) as usize + 1;
        let until_ms = self.now_ms + 40;
        // If all messages are in one lane, the store still knows only the keys, not that lane.
        load(&mut self.window, &self.rows, until_ms, scan);
    }

    fn lanes(&self) -> Vec<u32> {
        let mut lanes: Vec<u32> = self.window.lane_numbers.values().copied().collect();
        lanes.sort_unstable();
        lanes
    }

    fn take(&mut self) {
        for lane in self.lanes() {
            let it = self.window.lane(lane);
            if it.first().is_some() && it.is_free() && self.random.u8(0..10) < 7 {
                let slot = take(&mut self.window, lane);
                self.in_flight.push(slot);
            }
        }
        let without: Vec<Slot> = self
            .window
            .slots()
            .filter(|(_, it)| it.lane.is_none() && matches!(it.state, State::Uncommitted | State::Waiting))
            .map(|(slot, _)| slot)
            .collect();
        for slot in without {
            if self.random.u8(0..10) < 7 {
                self.window.entry_mut(slot).state = State::Ready;
                self.in_flight.push(slot);
            }
        }
    }

    fn settle(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let place = self.random.usize(0..self.in_flight.len());
        let slot = self.in_flight.swap_remove(place);
        let position = self.window.entry(slot).position();
        if self.random.u8(0..100) < 15 {
            self.window.put_back(slot);
            return;
        }
        let outcome = if self.random.u8(0..5) == 0 { Outcome::Dead } else { Outcome::Delivered };
        self.out.push((self.open[&position].lane, position));
        self.window.end(slot, outcome);
        self.over.push(position);
    }

    fn cancel(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let place = self.random.usize(0..self.open.len());
        let position = *self.open.keys().nth(place).unwrap();
        match self.window.find(position.1) {
            None => {
                self.open.remove(&position);
                assert!(self.rows.remove(&position).is_some(), "{position:?} is nowhere");
            }
            Some(slot) => {
                let state = self.window.entry(slot).state;
                if matches!(state, State::Uncommitted | State::Waiting | State::Leaving) {
                    self.window.end(slot, Outcome::Cancelled);
                    self.over.push(position);
                }
            }
        }
    }

    fn commit(&mut self) {
        let leaving = self.window.take_leaving();
        self.write(&leaving);
        self.random.shuffle(&mut self.over);
        for position in std::mem::take(&mut self.over) {
            self.open.remove(&position);
            self.rows.remove(&position);
            self.window.forget(position.1);
        }
    }

    fn check(&self) {
        let window = &self.window;
        let entries: Vec<&Entry> = window.slots().map(|(_, it)| it).collect();
        assert_eq!(window.bytes(), entries.iter().map(|it| it.size as usize).sum::<usize>());
        assert!(window.len() <= self.bounds.messages, "more messages in memory than the bound");
        assert!(window.bytes() <= self.bounds.bytes.max(40), "more bytes in memory than the bound");
        let cursor = window.share(0).cursor.unwrap();
        for (position, it) in &self.open {
            let entry = window.find(it.seq).map(|slot| window.entry(slot));
            let has_row = self.rows.contains_key(position);
            assert_eq!(has_row, !entry.is_some_and(|entry| entry.is_near), "{position:?}: near, or a row");
            let lane = window.find_lane(it.lane).map(|lane| window.lane(lane));
            let is_left = lane.is_some_and(|lane| lane.more_from.is_some_and(|from| *position >= from));
            if *position <= cursor && !is_left {
                assert!(entry.is_some(), "{position:?} is neither in memory nor left in the store on purpose");
            }
            if let (None, Some(lane)) = (entry, lane) {
                let later = lane.last().is_some_and(|(last, _)| last > *position);
                assert!(!later, "{:?} would go out before {position:?}", lane.last());
            }
        }
        for (lane, it) in self.lanes().into_iter().map(|lane| (lane, window.lane(lane))) {
            let waits = |entry: &&&Entry| {
                entry.lane == Some(lane) && matches!(entry.state, State::Uncommitted | State::Waiting)
            };
            let live: Vec<&&Entry> = entries.iter().filter(waits).collect();
            assert_eq!((it.len(), it.size), (live.len(), live.iter().map(|it| it.size as usize).sum()));
            assert_eq!(it.first().map(|it| it.0), live.iter().map(|it| it.position()).min());
            assert!(self.is_global || it.len() <= self.bounds.lane_messages + 1, "one came back at most");
            let is_needy = window.share(0).needy.iter().any(|(_, other)| *other == lane);
            assert!(!is_needy || it.more_from.is_some());
            assert!(it.len() > 0 || it.more_from.is_none() || is_needy, "a lane ran empty and nobody looks after it");
        }
        for entry in entries.iter().filter(|it| it.state != State::Over) {
            let number = self.open[&entry.position()].lane;
            assert_eq!(window.find_lane(number), entry.lane, "a message is in a lane that is gone");
        }
    }
}

fn play(seed: u64, is_global: bool, goes_back: bool) {
    let mut random = Rng::with_seed(seed);
    let bounds = Bounds {
        messages: random.usize(4..9),
        bytes: random.usize(60..200),
        lane_messages: random.usize(1..4),
        lane_bytes: random.usize(20..80),
    };
    let mut window = Window::new(bounds, is_global);
    window.share_mut(0).cursor = Some((-1, 0));
    let mut world = World {
        random,
        window,
        bounds,
        is_global,
        open: BTreeMap::new(),
        rows: BTreeMap::new(),
        in_flight: Vec::new(),
        over: Vec::new(),
        out: Vec::new(),
        seq: 0,
        now_ms: 0,
    };
    for _ in 0..250 {
        match world.random.u8(0..8) {
            0 | 1 => world.admit(),
            2 => world.load(),
            3 => world.take(),
            4 | 5 => world.settle(),
            6 => world.commit(),
            _ => world.cancel(),
        }
        if goes_back && world.random.u8(0..20) == 0 {
            world.now_ms -= world.below(30);
        }
        world.now_ms += world.below(3);
        world.check();
    }
    world.now_ms += 1_000;
    world.commit();
    world.out.clear();
    let left: Vec<(Option<i64>, Position)> = world.open.iter().map(|(at, row)| (row.lane, *at)).collect();
    for _ in 0..20 * world.open.len() + 50 {
        let acts: [fn(&mut World); 6] =
            [World::load, World::take, World::settle, World::settle, World::settle, World::commit];
        for act in acts {
            act(&mut world);
            world.check();
        }
    }
    assert!(world.open.is_empty(), "not everything came out: {:?}", world.open);
    assert!(world.window.lane_numbers.is_empty(), "empty lanes are left");
    assert_eq!(world.window.len(), 0);
    // No new message came in, so the rest of each lane is in order.
    for lane in left.iter().map(|(lane, _)| *lane).filter(|lane| lane.is_some() || is_global) {
        let out = world.out.iter().filter(|(other, _)| is_global || *other == lane).map(|(_, at)| *at);
        let out: Vec<Position> = out.collect();
        assert!(out[1..].is_sorted(), "{out:?}"); // the first may have been on its way
    }
}

#[test]
fn whatever_happens_nothing_is_lost_or_overtakes_and_the_bounds_hold__d4_d8() {
    for seed in 0..500 {
        for (is_global, goes_back) in [(false, false), (false, true), (true, false), (true, true)] {
            let result = std::panic::catch_unwind(|| play(seed, is_global, goes_back));
            if let Err(error) = result {
                eprintln!("seed {seed}, global: {is_global}, the clock goes back: {goes_back}");
                std::panic::resume_unwind(error);
            }
        }
    }
}

/// The loader reads without the lock. Meanwhile a sender may clear a lane away.
#[test]
fn a_lane_that_is_cleared_away_while_its_rows_are_read_loses_none__d8() {
    for is_read in [false, true] {
        let mut window = Window::new(Bounds { lane_messages: 4, ..Bounds::default() }, false);
        window.share_mut(0).cursor = Some((0, 0));
        let rows: Vec<WaitingRow> = (1..=5).map(|at| row(at, at, Some(1), 10)).collect();
        window.read_ahead(0, &rows, 1_000, true);
        let lane = window.lane_numbers[&1];
        for seq in 1..=4 {
            let slot = window.find(seq).unwrap();
            window.entry_mut(slot).state = State::Waiting;
        }
        let first = take(&mut window, lane);
        end(&mut window, first, Outcome::Delivered);
        take(&mut window, lane);
        let (numbers, start) = window.refill_from(0).unwrap();
        assert_eq!(start, (5, 5));
        window.clear_away(lane);
        assert_eq!(of_lane(&window, 1).more_from, Some((3, 3)));
        window.refill(0, &numbers, if is_read { &rows[4..] } else { &[] }, start, (1_000, LAST));
        assert_eq!(of_lane(&window, 1).more_from, Some((3, 3)));
    }
}
