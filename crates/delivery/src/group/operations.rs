//! The table of operations on messages, and the meaning of each answer in HTTP, in the commands and in Python.
//!
//! The table is plain data. HTTP reads the status from it, the commands read the exit code and the sentence, and Python
//! makes its class `Answer` from [`ANSWERS`]. Tests compare `docs/openapi.yaml` and the pages with the table.
//! `docs/internals/design.md` has the steps of a new operation.

use super::items::Answer;
use super::items::Answer::{
    Accepted, Cancelled, Conflict, Dead, Delivered, Delivering, Duplicate, Expired, Full, LetGo, Paused, Recurring,
    Refused, Removed, Replaced, Requeued, Rescheduled, Resumed, Tried, Unknown, Waiting,
};
use crate::sinks::TAKES_NO_NAMED;

/// Each answer and its word, in the order of the enum.
pub const ANSWERS: [(Answer, &str); 21] = [
    (Accepted, "accepted"),
    (Duplicate, "duplicate"),
    (Conflict, "conflict"),
    (Cancelled, "cancelled"),
    (Delivered, "delivered"),
    (Delivering, "delivering"),
    (Dead, "dead"),
    (Expired, "expired"),
    (Unknown, "unknown"),
    (Waiting, "waiting"),
    (Recurring, "recurring"),
    (Rescheduled, "rescheduled"),
    (Replaced, "replaced"),
    (Requeued, "requeued"),
    (Paused, "paused"),
    (Resumed, "resumed"),
    (Tried, "tried"),
    (Refused, "refused"),
    (Removed, "removed"),
    (Full, "full"),
    (LetGo, "let_go"),
];

/// An operation that a caller can ask for.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The name of the method in Python, and of the command.
    pub name: &'static str,
    /// Its HTTP requests, as in `docs/openapi.yaml`.
    pub requests: &'static [&'static str],
    /// Every answer that it may have.
    pub replies: &'static [Reply],
}

/// An answer to an operation.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// The status over HTTP.
    pub status: u16,
    /// The exit code of the command: 0 if the operation did its work, 1 if it came too late, 2 if it was refused.
    pub exit_code: u8,
    /// A sentence about the message, or about the key.
    pub sentence: &'static str,
}

const fn done(answer: Answer, status: u16, sentence: &'static str) -> Reply {
    Reply { answer, status, exit_code: 0, sentence }
}

const fn too_late(answer: Answer, sentence: &'static str) -> Reply {
    Reply { answer, status: 409, exit_code: 1, sentence }
}

const UNKNOWN: Reply = Reply { answer: Unknown, status: 404, exit_code: 1, sentence: "no message has this name" };
const UNKNOWN_DESTINATION: Reply = Reply { sentence: "no destination has this name", ..UNKNOWN };
const REFUSED: Reply = Reply { answer: Refused, status: 409, exit_code: 2, sentence: "this key can't be paused" };
/// Why a message without a destination is refused, or one whose destination is not known here.
pub(super) const NAMES_NO_DESTINATION: &str = "it names no destination, or one that is not set";
const NO_DESTINATION: Reply = Reply { answer: Refused, status: 422, exit_code: 2, sentence: NAMES_NO_DESTINATION };
/// Why a tenant is not set.
pub(crate) const TENANTS_ARE_ONE: &str = "all messages have one order, so all tenants are one";
/// Why a message that waits for an event is refused.
pub(super) const MANY_WAIT: &str = "1,000 messages of its key wait for events";
const FULL: Reply = Reply { answer: Full, status: 409, exit_code: 2, sentence: MANY_WAIT };
const DELIVERED: Reply = too_late(Delivered, "it is delivered");
const DELIVERING: Reply = too_late(Delivering, "it is being sent in this moment");
const DEAD: Reply = too_late(Dead, "it is a dead letter");
const EXPIRED: Reply = too_late(Expired, "it has expired");
const CANCELLED: Reply = too_late(Cancelled, "it is cancelled");

/// All operations.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "put",
        requests: &["POST /messages"],
        replies: &[
            done(Accepted, 201, "it is on disk, and will be delivered"),
            done(Duplicate, 200, "it was accepted before, with the same content"),
            too_late(Conflict, "it was accepted before with other content"),
            done(Cancelled, 200, "a cancel came before it"),
            done(Replaced, 200, "it recurs, and has another rule or payload now"),
            NO_DESTINATION,
            FULL,
        ],
    },
    Operation {
        name: "replace",
        requests: &["POST /messages"],
        replies: &[
            done(Accepted, 201, "it is on disk, and will be delivered"),
            done(Replaced, 200, "it takes the place of the message that waited"),
            done(Duplicate, 200, "it was accepted before, with the same content"),
            done(Cancelled, 200, "a cancel came before it"),
            DELIVERING,
            NO_DESTINATION,
            FULL,
        ],
    },
    Operation {
        name: "cancel",
        requests: &["DELETE /messages/{id}", "POST /messages"],
        replies: &[
            done(Cancelled, 200, "it is cancelled"),
            done(Unknown, 202, "it has not come, and is cancelled when it comes"),
            DELIVERED,
            DELIVERING,
            DEAD,
            EXPIRED,
        ],
    },
    Operation {
        name: "reschedule",
        requests: &["PATCH /messages/{id}", "POST /messages"],
        replies: &[
            done(Rescheduled, 200, "it has another due time"),
            UNKNOWN,
            CANCELLED,
            DELIVERED,
            DELIVERING,
            DEAD,
            EXPIRED,
            too_late(Recurring, "no occurrence of it waits"),
        ],
    },
    Operation {
        name: "event",
        requests: &["POST /messages"],
        replies: &[
            done(LetGo, 200, "the messages that waited for it are due now"),
            too_late(Conflict, "an event of this name came before with other content"),
        ],
    },
    Operation {
        name: "forget_event",
        requests: &["DELETE /remembered"],
        replies: &[
            done(Cancelled, 200, "it is remembered no more"),
            Reply { sentence: "no event of this name is remembered", ..UNKNOWN },
        ],
    },
    Operation {
        name: "requeue",
        requests: &["POST /requeue"],
        replies: &[
            done(Requeued, 200, "it is tried anew"),
            UNKNOWN,
            CANCELLED,
            DELIVERED,
            DELIVERING,
            too_late(Dead, "it is a dead letter, and its record is not kept any more"),
            too_late(Expired, "it has expired, and its record is not kept any more"),
            too_late(Waiting, "it waits, and is no dead letter"),
            too_late(Recurring, "it recurs, and is no dead letter"),
            Reply { sentence: "its destination is not set any more: set it again, then requeue it", ..REFUSED },
        ],
    },
    Operation {
        name: "again",
        requests: &["POST /again"],
        replies: &[
            done(Tried, 200, "it waits no more, and is tried now"),
            Reply { sentence: "nothing of this name waits for its next attempt", ..UNKNOWN },
            DELIVERING,
            too_late(Paused, "its key is paused, or all sending is: resume it first"),
            too_late(Waiting, "it waits, but not for its next attempt"),
            DELIVERED,
            CANCELLED,
            DEAD,
            EXPIRED,
            too_late(Recurring, "it recurs: name its occurrence"),
        ],
    },
    Operation {
        name: "look",
        requests: &["GET /messages/{id}"],
        replies: &[
            done(Waiting, 200, "it waits"),
            done(Recurring, 200, "it recurs"),
            done(Delivering, 200, "it is being sent in this moment"),
            done(Delivered, 200, "it is delivered"),
            done(Cancelled, 200, "it is cancelled"),
            done(Dead, 200, "it is a dead letter"),
            done(Expired, 200, "it has expired"),
            UNKNOWN,
        ],
    },
    Operation {
        name: "pause",
        requests: &["POST /pause"],
        replies: &[done(Paused, 200, "nothing more is sent"), REFUSED, UNKNOWN_DESTINATION],
    },
    Operation {
        name: "set_destination",
        requests: &["PUT /destinations/{name}"],
        replies: &[
            done(Accepted, 201, "it is set"),
            done(Replaced, 200, "it has these settings now"),
            Reply { sentence: TAKES_NO_NAMED, ..REFUSED },
        ],
    },
    Operation {
        name: "remove_destination",
        requests: &["DELETE /destinations/{name}"],
        replies: &[
            done(Removed, 200, "it is removed, and its messages become dead letters"),
            UNKNOWN_DESTINATION,
            Reply { sentence: "it has messages: wait for them, or make dead letters of them", ..REFUSED },
        ],
    },
    Operation {
        name: "set_tenant",
        requests: &["PUT /tenants/{name}"],
        replies: &[
            done(Accepted, 201, "it is set"),
            done(Replaced, 200, "it has these settings now"),
            Reply { sentence: TENANTS_ARE_ONE, ..REFUSED },
        ],
    },
    Operation {
        name: "remove_tenant",
        requests: &["DELETE /tenants/{name}"],
        replies: &[
            done(Removed, 200, "it has the usual limits, and its messages stay"),
            Reply { sentence: "no tenant of this name was set or paused", ..UNKNOWN },
        ],
    },
    Operation {
        name: "resume",
        requests: &["POST /resume"],
        replies: &[done(Resumed, 200, "what is due is sent"), UNKNOWN_DESTINATION],
    },
    Operation {
        name: "act",
        requests: &["POST /actions"],
        replies: &[
            done(Accepted, 202, "it has begun"),
            done(Duplicate, 200, "it has begun before"),
            too_late(Conflict, "this id is of another action"),
            Reply { sentence: UNKNOWN_DESTINATION.sentence, ..NO_DESTINATION },
        ],
    },
];

/// Returns the answer. Debug builds check that the table has it, so every test of the engine also checks the table.
pub(super) fn replied(operation: &str, answer: Answer) -> Answer {
    debug_assert!(
        OPERATIONS.iter().any(|it| it.name == operation && it.replies.iter().any(|reply| reply.answer == answer)),
        "the table of operations has no {answer:?} for {operation}"
    );
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_stand_in_the_order_of_the_answers() {
        assert!(ANSWERS.iter().enumerate().all(|(place, (answer, _))| *answer as usize == place));
        assert_eq!(ANSWERS[Removed as usize].1, "removed");
        assert_eq!(ANSWERS[Refused as usize].1, "refused");
    }

    #[test]
    fn an_operation_has_each_answer_once_and_does_its_work_by_the_first() {
        for operation in OPERATIONS {
            let mut seen: Vec<_> = operation.replies.iter().map(|reply| reply.answer as usize).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), operation.replies.len(), "{}", operation.name);
            assert_eq!(operation.replies[0].exit_code, 0, "{}", operation.name);
            assert!(operation.replies.iter().all(|it| (it.exit_code == 0) == (it.status < 300)), "{}", operation.name);
        }
        let answered = |answer: Answer| OPERATIONS.iter().flat_map(|it| it.replies).any(|it| it.answer == answer);
        assert!(ANSWERS.iter().all(|(answer, _)| answered(*answer)));
    }
}
