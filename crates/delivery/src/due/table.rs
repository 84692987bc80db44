//! What happens to a message: the sender's table (rules D3 to D7), as pure functions of states and events. They have no
//! clock, no lock and no store. `docs/internals/sender.md` has the same table, with the reasons.
//!
//! | event | function | what it decides |
//! |---|---|---|
//! | a message is due | [`due`] | whether it goes to its queue, to its lane, or waits with its key |
//! | a place may be free | [`turn`] | which kind of message goes next |
//! | a message is taken for a place | [`taken`] | whether it is sent, and what else becomes of it |
//! | an answer, or its time is over | [`effect`], [`counts`], [`after`] | what the answer says, and what the message does then |
//! | a key has waited | [`waited`] | which message of the key goes on |
//! | a cancel or a move | [`taken_back`] | whether it comes in time |
//!
//! The states of a message are [`State`]. A key is *well*, *in doubt*, *waiting* or *paused*. The destination is *up*, *down*
//! or *paused*.

use super::strikes;
use super::window::State;
use crate::sinks::Verdict;

/// The message has a due time that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Its lane sends its first message.
    Lane,
    /// It goes to the queue for sending.
    Ready,
    /// It waits for its next attempt.
    Retrying,
}

pub(super) fn due(has_lane: bool, key_waits: bool) -> Due {
    match (has_lane, key_waits) {
        (true, _) => Due::Lane,
        (false, false) => Due::Ready,
        (false, true) => Due::Retrying,
    }
}

/// Where the next message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A message of a key that is not in doubt.
    Fresh,
    /// A message of a key in doubt.
    InDoubt,
    /// A try while the destination is down: of a key in doubt, or not.
    Try(bool),
    /// The message with strikes that goes alone.
    Alone,
}

/// What could start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Startable {
    /// A message goes alone, or is next to go alone. Whether it can start.
    Alone(bool),
    /// The destination is down. The kind of the next try, if there is one: of a key in doubt, or not.
    Down(Option<bool>),
    /// `fresh_first`: those not in doubt have their turn, if both can start.
    Up { fresh: bool, in_doubt: bool, fresh_first: bool },
}

/// Keys in doubt go first because they can't take more than the spare places. If both can start, they take turns.
pub(super) fn turn(can: Startable) -> Option<Turn> {
    match can {
        Startable::Alone(can_start) => can_start.then_some(Turn::Alone),
        Startable::Down(next_try) => next_try.map(Turn::Try),
        Startable::Up { in_doubt: true, fresh, fresh_first } if !(fresh && fresh_first) => Some(Turn::InDoubt),
        Startable::Up { fresh, .. } => fresh.then_some(Turn::Fresh),
    }
}

/// What is known of a message that could be sent now.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a row of the table")]
pub(super) struct Candidate {
    pub(super) is_key_paused: bool,
    /// It certainly did not arrive, and an earlier message of its key has come.
    pub(super) is_behind: bool,
    pub(super) is_early: bool,
    pub(super) is_expired: bool,
    /// It is due after the limit on disk.
    pub(super) is_past_limit: bool,
    pub(super) strikes: u32,
    pub(super) is_noted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It goes back to the store until its key is resumed.
    LeavePaused,
    /// The earlier message of its key goes first.
    GoBehind,
    /// It goes back on the timer.
    WaitForDue,
    Expire,
    /// It waits for the next commit.
    WaitForLimit,
    /// The process ended each time it was sent: a dead letter.
    GiveUp,
    /// It is noted on disk first.
    WaitForNote,
    Send,
}

/// The first row that fits counts.
pub(super) fn taken(it: Candidate) -> Taken {
    match it {
        Candidate { is_key_paused: true, .. } => Taken::LeavePaused,
        Candidate { is_behind: true, .. } => Taken::GoBehind,
        Candidate { is_early: true, .. } => Taken::WaitForDue,
        Candidate { is_expired: true, .. } => Taken::Expire,
        Candidate { is_past_limit: true, .. } => Taken::WaitForLimit,
        Candidate { strikes, .. } if strikes::is_given_up(strikes) => Taken::GiveUp,
        Candidate { strikes: strikes::IN_GROUP.., is_noted: false, .. } => Taken::WaitForNote,
        _ => Taken::Send,
    }
}

/// How a send ended that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The answer was about this message.
    Refused,
    /// As refused, and for good.
    Final,
    /// The destination failed, maybe over this message.
    Failed,
    /// There was no answer about the message.
    Unanswered,
    /// The destination was not reached.
    Unreachable,
}

/// The ending, its reason, and the wait that the destination asked for. `None`: accepted, or not tried.
pub(super) fn ending(verdict: Verdict) -> Option<(Ending, String, Option<u64>)> {
    Some(match verdict {
        Verdict::Delivered | Verdict::NotTried => return None,
        Verdict::Refused(reason) => (Ending::Refused, reason, None),
        Verdict::Final(reason) => (Ending::Final, reason, None),
        Verdict::Failed { reason, retry_after_ms } => (Ending::Failed, reason, retry_after_ms),
        Verdict::Unanswered { reason, retry_after_ms } => (Ending::Unanswered, reason, retry_after_ms),
        Verdict::Unreachable { reason, retry_after_ms } => (Ending::Unreachable, reason, retry_after_ms),
    })
}

/// What an ending says of the message and of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    /// The message may have arrived: the next send is marked, and it keeps its place in its key.
    pub(super) may_have_arrived: bool,
    /// It is a sign that the destination is down.
    pub(super) is_sign: bool,
}

pub(super) fn effect(ending: Ending) -> Effect {
    let (may_have_arrived, is_sign) = match ending {
        Ending::Refused | Ending::Final => (false, false),
        Ending::Failed | Ending::Unanswered => (true, true),
        Ending::Unreachable => (false, true),
    };
    Effect { may_have_arrived, is_sign }
}

/// Whether the attempt counts towards the most that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// It is the last one.
    AsLast,
    Yes,
    No,
    /// The destination was down when the send began or when it ended, and not even time counts.
    Down,
}

/// `was_down`: when the send began, or when it ended. `accepted_between`: another message was accepted since the last attempt of the key that *failed*, or there was none.
/// `waits_end`: the end of the list of waits is the end of the message, whatever the answers are.
pub(super) fn counts(ending: Ending, was_down: bool, accepted_between: bool, waits_end: bool) -> Counts {
    match ending {
        Ending::Final => Counts::AsLast,
        _ if was_down => Counts::Down,
        _ if waits_end => Counts::Yes,
        Ending::Refused => Counts::Yes,
        Ending::Failed if accepted_between => Counts::Yes,
        Ending::Failed | Ending::Unanswered | Ending::Unreachable => Counts::No,
    }
}

/// What a message does that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// A dead letter: it had all its attempts.
    GiveUpByCount,
    /// A dead letter: its key had no success for too long.
    GiveUpByTime,
    /// Its key waits.
    Wait,
}

/// `is_last`: no further attempt may count. `is_overdue`: it has been due, and its key without success, for too long.
pub(super) fn after(counts: Counts, is_last: bool, is_overdue: bool) -> After {
    match counts {
        Counts::AsLast => After::GiveUpByCount,
        Counts::Yes if is_last => After::GiveUpByCount,
        Counts::No if is_overdue => After::GiveUpByTime,
        Counts::Yes | Counts::No | Counts::Down => After::Wait,
    }
}

/// Which message of a key goes on after its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The message that is in flight, in memory.
    InFlight,
    /// The message for which the lane waits is read from the store.
    Read,
    /// The first message of the lane.
    First,
    /// The message in flight is on its way already.
    Nothing,
}

/// `in_flight`: the state of the lane's message that was tried, if it is in memory. `parked_first`: a message in the store is
/// what the lane waits for, and it keeps its place before those that came meanwhile.
pub(super) fn waited(in_flight: Option<State>, parked_first: bool) -> Waited {
    match (in_flight, parked_first) {
        (Some(State::Retrying | State::Parked), _) => Waited::InFlight,
        (Some(_), _) => Waited::Nothing,
        (None, true) => Waited::Read,
        (None, false) => Waited::First,
    }
}

/// Whether a cancel or a move comes in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawn {
    InTime,
    Sending,
    Over,
}

pub(super) fn taken_back(state: State) -> Withdrawn {
    match state {
        State::Uncommitted | State::Waiting | State::Ready | State::Retrying | State::Parked | State::Leaving => {
            Withdrawn::InTime
        }
        State::Sending => Withdrawn::Sending,
        State::Over => Withdrawn::Over,
    }
}

#[cfg(test)]
mod tests;
