//! The table, row by row.

use super::*;

#[test]
fn what_is_due_goes_to_its_lane_or_to_its_queue_or_waits_with_its_key__d3_d4() {
    let rows = [
        ((true, false), Due::Lane),
        ((true, true), Due::Lane),
        ((false, false), Due::Ready),
        ((false, true), Due::Retrying),
    ];
    for ((has_lane, key_waits), then) in rows {
        assert_eq!(due(has_lane, key_waits), then);
    }
}

#[test]
fn a_message_that_goes_alone_is_before_all_and_a_try_before_the_queues__d6() {
    let rows = [
        (Startable::Alone(true), Some(Turn::Alone)),
        (Startable::Alone(false), None),
        (Startable::Down(Some(true)), Some(Turn::Try(true))),
        (Startable::Down(Some(false)), Some(Turn::Try(false))),
        (Startable::Down(None), None),
    ];
    for (can, then) in rows {
        assert_eq!(turn(can), then, "{can:?}");
    }
}

#[test]
fn keys_in_doubt_go_first_and_take_turns_with_the_others__d6() {
    let rows = [
        ((true, true, false), Some(Turn::InDoubt)),
        ((true, true, true), Some(Turn::Fresh)),
        ((false, true, true), Some(Turn::InDoubt)),
        ((false, true, false), Some(Turn::InDoubt)),
        ((true, false, false), Some(Turn::Fresh)),
        ((false, false, true), None),
    ];
    for ((fresh, in_doubt, fresh_first), then) in rows {
        assert_eq!(turn(Startable::Up { fresh, in_doubt, fresh_first }), then, "{fresh} {in_doubt} {fresh_first}");
    }
}

#[test]
fn the_first_row_that_fits_decides_what_becomes_of_a_message_that_is_taken__d3_d4_d6() {
    let all = Candidate {
        is_key_paused: true,
        is_behind: true,
        is_early: true,
        is_expired: true,
        is_past_limit: true,
        strikes: 6,
        is_noted: false,
    };
    let mut it = all;
    assert_eq!(taken(it), Taken::LeavePaused);
    it.is_key_paused = false;
    assert_eq!(taken(it), Taken::GoBehind);
    it.is_behind = false;
    assert_eq!(taken(it), Taken::WaitForDue);
    it.is_early = false;
    assert_eq!(taken(it), Taken::Expire);
    it.is_expired = false;
    assert_eq!(taken(it), Taken::WaitForLimit);
    it.is_past_limit = false;
    assert_eq!(taken(it), Taken::GiveUp);
    for (strikes, is_noted, then) in [
        (0, false, Taken::Send),
        (1, false, Taken::Send),
        (2, false, Taken::WaitForNote),
        (2, true, Taken::Send),
        (5, false, Taken::WaitForNote),
        (5, true, Taken::Send),
    ] {
        assert_eq!(taken(Candidate { strikes, is_noted, ..Candidate::default() }), then, "{strikes}");
    }
}

#[test]
fn what_an_ending_says_of_the_message_and_of_the_destination__d6() {
    let rows = [
        (Ending::Refused, false, false),
        (Ending::Final, false, false),
        (Ending::Failed, true, true),
        (Ending::Unanswered, true, true),
        (Ending::Unreachable, false, true),
    ];
    for (ending, may_have_arrived, is_sign) in rows {
        assert_eq!(effect(ending), Effect { may_have_arrived, is_sign }, "{ending:?}");
    }
}

#[test]
fn which_attempts_count__d6() {
    let rows = [
        (Ending::Refused, false, Counts::Yes),
        (Ending::Refused, true, Counts::Yes),
        (Ending::Failed, false, Counts::No),
        (Ending::Failed, true, Counts::Yes),
        (Ending::Unanswered, true, Counts::No),
        (Ending::Unreachable, true, Counts::No),
    ];
    for (ending, accepted_between, then) in rows {
        assert_eq!(counts(ending, false, accepted_between, false), then, "{ending:?}");
        assert_eq!(counts(ending, false, accepted_between, true), Counts::Yes, "{ending:?}");
        assert_eq!(counts(ending, true, accepted_between, true), Counts::Down, "{ending:?}");
    }
}

#[test]
fn what_can_never_be_sent_is_given_up_whatever_happened__d23() {
    for (was_down, accepted_between, waits_end) in [(true, false, false), (false, true, true)] {
        let counts = counts(Ending::Final, was_down, accepted_between, waits_end);
        assert_eq!(after(counts, false, false), After::GiveUpByCount);
    }
}

#[test]
fn when_a_message_is_given_up__d6() {
    let rows = [
        ((Counts::Yes, true, false), After::GiveUpByCount),
        ((Counts::Yes, true, true), After::GiveUpByCount),
        ((Counts::Yes, false, true), After::Wait),
        ((Counts::No, true, false), After::Wait),
        ((Counts::No, false, true), After::GiveUpByTime),
        ((Counts::Down, true, true), After::Wait),
    ];
    for ((counts, is_last, is_overdue), then) in rows {
        assert_eq!(after(counts, is_last, is_overdue), then);
    }
}

#[test]
fn which_message_goes_on_after_the_wait_of_its_key__d4_d6() {
    let rows = [
        (Some(State::Retrying), false, Waited::InFlight),
        (Some(State::Parked), true, Waited::InFlight),
        (Some(State::Sending), false, Waited::Nothing),
        (Some(State::Over), false, Waited::Nothing),
        (None, true, Waited::Read),
        (None, false, Waited::First),
    ];
    for (in_flight, parked_first, then) in rows {
        assert_eq!(waited(in_flight, parked_first), then, "{in_flight:?}");
    }
}

#[test]
fn a_message_can_be_taken_back_until_it_is_sent__d7() {
    let rows = [
        (State::Uncommitted, Withdrawn::InTime),
        (State::Waiting, Withdrawn::InTime),
        (State::Ready, Withdrawn::InTime),
        (State::Sending, Withdrawn::Sending),
        (State::Retrying, Withdrawn::InTime),
        (State::Parked, Withdrawn::InTime),
        (State::Leaving, Withdrawn::InTime),
        (State::Over, Withdrawn::Over),
    ];
    for (state, then) in rows {
        assert_eq!(taken_back(state), then, "{state:?}");
    }
}
