"""An action on many messages, as its user asks for it (rule D16)."""

import uuid
from datetime import datetime
from typing import TypeAlias

from tickwheel._native import due_ms_of, rfc_3339
from tickwheel.delivery.base.errors import BadRecord, WrongUsage, quoted
from tickwheel.delivery.model.entries import Act, ActionKind, Answer, no_destination

Time: TypeAlias = datetime | str | int


def act_of(
    kind: str,
    id: str | None = None,  # noqa: A002
    key: str | None = None,
    key_prefix: str | None = None,
    due_from: Time | None = None,
    due_before: Time | None = None,
    destination: str | None = None,
    tenant: str | None = None,
    all: bool = False,  # noqa: A002
    how_all: str = "all=True",
) -> Act:
    """The action on the messages that match every given filter, or on all messages. `how_all`: how to ask for all
    messages, for the text of an error. Errors: `WrongUsage`, `BadRecord`.
    """
    texts = {"key": key, "key_prefix": key_prefix, "destination": destination, "tenant": tenant}
    given = texts | {"due_from": due_from, "due_before": due_before}
    is_filtered = any(value is not None for value in given.values())
    if type(all) is not bool:
        raise WrongUsage(f"all is {all!r:.100}: give True or False")
    if is_filtered == all:
        what = "both are given" if all else "neither is given"
        raise WrongUsage(f"say which messages, by {', '.join(given)}, or {how_all} for every one: {what}")
    for name, text in {"the action's id": id, **texts}.items():
        if text is not None and not is_text(text):
            raise WrongUsage(f"{name} is {text!r:.100}: give text in UTF-8, 1 byte to 1 MiB")
    own_id = uuid.uuid4().hex if id is None else id
    return Act(own_id, ActionKind(kind), key, key_prefix, *range_of(due_from, due_before), destination, tenant)


def why_refused(act: Act, answer: Answer) -> BadRecord | None:
    """Why the action did not begin; `None`: it did."""
    if answer is Answer.CONFLICT:
        return BadRecord("this id is of another action", "the same kind and filters again, or another id")
    return no_destination(act.destination) if answer is Answer.REFUSED else None


def range_of(due_from: Time | None, due_before: Time | None) -> tuple[int | None, int | None]:
    """Both in milliseconds since 1970. Errors: `BadRecord`; `WrongUsage` if no time is between them."""
    from_ms, before_ms = ms_of("due_from", due_from), ms_of("due_before", due_before)
    if from_ms is not None and before_ms is not None and from_ms > before_ms:
        given = f"due_from is {rfc_3339(from_ms)}, and due_before {rfc_3339(before_ms)}"
        raise WrongUsage(f"{given}, which is earlier: no message is due between them")
    return from_ms, before_ms


def is_text(text: object) -> bool:
    """Whether this can be an id, a key, or a part of one."""
    try:
        return isinstance(text, str) and 0 < len(text.encode()) <= 1 << 20
    except UnicodeEncodeError:
        return False


def checked_text(given: str, name: str) -> str:
    """Errors: `WrongUsage` if it is no text in UTF-8."""
    try:
        return given.encode().decode()
    except (AttributeError, UnicodeEncodeError):
        raise WrongUsage(f"{name} is {quoted(given)}: give text in UTF-8") from None


def ms_of(name: str, time: Time | None) -> int | None:
    """Milliseconds since 1970. Errors: `BadRecord`, which says the `name`."""
    if time is None:
        return None
    try:
        return due_ms_of(time, None)
    except BadRecord as error:
        raise BadRecord(name + error.reason.removeprefix("due"), error.allowed) from None
