"""The two logs of a shard: what is given at once, in the order in which it came, beside the messages that wait.

    rows --keep--> controls:  cancels, reschedules, dead letters --give--> UNSURE <-- GIVEN --> TAKEN --settle--> gone
               +-> recurring: recurring messages, and what is asked of them            (the same)

- **Controls** stay until all messages that waited when they came are settled, because a store that replaces a lost
  store must know them too.
- A **recurring** message goes to the deliverer unchanged, and the deliverer makes its occurrences. It stays until the
  taker has a cancel or another message of its name, or reports that it has ended. A reschedule of it stays until the
  taker has it, because later it would concern another occurrence. Other requests stay as long as a control.

A log may be given again, from any row on, to the same store or to another one. Rows about a recurring message have a
time, `asked_ms`, by which the deliverer knows them again and leaves them out. Other reschedules have no such time. If
a later reschedule undoes them, they are not given again.

A store that replaces a lost store gets with a recurring message what the lost one had done: all until `settled_ms` had
its outcome, and all until `sent_ms` may have been sent.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tickwheel._native import occurrence_after
from tickwheel.spark.chunks import Chunks
from tickwheel.spark.packing import as_repeats, digest_of, names_of, replaced
from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.shard_index import Index, Log, Stage

Name: TypeAlias = tuple[str | None, str]

_MANY: Final = 32


# --- What comes ---------------------------------------------------------------


def keep(index: Index, chunks: Chunks, rows: Any, now_ms: int, until_ms: int) -> None:
    """Keep the rows that are not messages to hold: those about recurring messages in a log of their own."""
    recurring: dict[int, int | None] = {}  # by the place of each the time of the request; of an occurrence none
    is_rule, names = _is_rule(rows), names_of(rows)
    if index.recurring or is_rule.any():
        # With the rules of this micro-batch: if it is done again, a cancel before a rule would end the rule.
        rules = {*_rules(index, chunks), *(names[at] for at in np.flatnonzero(is_rule))}
        for at, name in enumerate(names):
            if name in rules:
                index.asked_ms = max(index.asked_ms + 1, now_ms)  # also where a clock was set back
                recurring[at] = index.asked_ms
            elif (of := _occurrence_of(name)) and of[0] in rules:
                recurring[at] = None
    others = [at for at in range(rows.num_rows) if at not in recurring]
    index.controls += _logs(chunks, rows.take(pa.array(others, pa.int64())), until_ms)
    asked = rows.take(pa.array([*recurring], pa.int64()))
    index.recurring += _logs(chunks, replaced(asked, asked_ms=[*recurring.values()]), until_ms)


def _logs(chunks: Chunks, rows: Any, until_ms: int) -> list[Log]:
    return [_log(chunks, chunk, Log(0, until_ms, 0, 0, 0)) for chunk in cut(rows)]


def _log(chunks: Chunks, rows: Any, like: Log) -> Log:
    rules = int(_is_rule(rows).sum())
    chunk = chunks.put(rows)
    return replace(like, chunk=chunk, rules=rules, others=rows.num_rows - rules, size=rows.nbytes)


# --- What goes ----------------------------------------------------------------


def give(
    index: Index, chunks: Chunks, now_ms: int, near_ms: int, *, no_new_rules: bool, most_bytes: int
) -> Iterator[Any]:
    """Give the taker the rows that it does not know, in order. It may send everything that is due until `near_ms`.
    `most_bytes`: about how many bytes about recurring messages are given; the others are given later.
    """
    is_once_more = any(it.stage == Stage.UNSURE or it.is_again for it in index.logs())
    has_requests = any(it.stage < Stage.GIVEN and it.others for it in index.recurring)
    rules = _rules(index, chunks) if is_once_more or has_requests else {}
    if is_once_more:
        index.controls = _for_once_more(index.controls, chunks, rules)
        index.recurring = _for_once_more(index.recurring, chunks, rules)
    for it in index.controls:
        if it.stage < Stage.GIVEN:
            may_be_known = it.stage == Stage.UNSURE or it.is_again
            it.stage = Stage.GIVEN
            rows = chunks.get(it.chunk)
            yield as_repeats(rows) if may_be_known else rows
    size = 0
    for it in index.recurring:
        if it.stage >= Stage.GIVEN:
            continue
        if it.stage == Stage.WAITS:
            if no_new_rules or size >= most_bytes:
                break
            size += it.size
        it.stage = Stage.GIVEN
        rows = chunks.get(it.chunk)
        _note_early(index, rules, rows, now_ms)
        yield _going_on(rows, it, near_ms, index.early_ms) if it.is_again else rows


def _for_once_more(log: Sequence[Log], chunks: Chunks, rules: Collection[Name]) -> list[Log]:
    """The log without rows that do harm if they are given once more. A reschedule that a later one undoes may make a
    message early. A cancel or a reschedule may have come before a recurring message of its name, and would change it.
    """
    later: set[Name] = set()
    kept: list[Log] = []
    for it in reversed(log):
        if it.stage >= Stage.GIVEN or not it.others:
            kept.append(it)
            continue
        rows = chunks.get(it.chunk)
        names, stays, moves = names_of(rows), _is_asked(rows) | _is_rule(rows), _is_move(rows)
        for at in reversed(np.flatnonzero(~stays).tolist()):
            stays[at] = names[at] not in rules and not (moves[at] and names[at] in later)
            if moves[at]:
                later.add(names[at])
        kept += _left(it, chunks, rows, stays)
    return kept[::-1]


def _rules(index: Index, chunks: Chunks) -> dict[Name, str]:
    """The recurring messages by their names: the last rule of each."""
    found: dict[Name, str] = {}
    for it in index.recurring:
        rows = chunks.get(it.chunk)
        rules = zip(names_of(rows), rows.column("recurrence").to_pylist(), strict=True)
        found |= {name: rule for name, rule in rules if rule is not None}
    return found


def _note_early(index: Index, rules: Mapping[Name, str], rows: Any, now_ms: int) -> None:
    """Note which occurrences may be sent before their time, because these rows reschedule them. It is noted each time
    that a row is given, because the taker may have applied it before, to an earlier occurrence.
    """
    early_ms = index.early_ms
    for name, moves in zip(names_of(rows), _is_move(rows), strict=True) if rules else ():
        if name in rules and moves:
            digest = digest_of(name)
            early_ms[digest] = occurrence_after(rules[name], max(now_ms, early_ms.get(digest, 0)))
        elif name not in rules and (of := _occurrence_of(name)):
            digest = digest_of(of[0])
            early_ms[digest] = max(of[1], early_ms.get(digest, 0))


def _going_on(rows: Any, it: Log, near_ms: int, early_ms: Mapping[int, int]) -> Any:
    """The recurring messages for a store that replaces another: what that had settled, and may have sent."""
    told = []
    for name, rule in zip(names_of(rows), rows.column("recurrence").to_pylist(), strict=True):
        if rule is not None:
            sent_ms = max(near_ms, early_ms.get(digest_of(name), 0))
            before = {"settled_ms": it.settled_ms, "sent_ms": sent_ms}
            rule = msgspec.json.encode(msgspec.json.decode(rule) | {"before": before}).decode()
        told.append(rule)
    return replaced(rows, recurrence=told)


# --- What became of it --------------------------------------------------------


def settle(index: Index, chunks: Chunks, mark_ms: int, open_names: Collection[Name] | None) -> None:
    """The taker has what it was given, and has settled all until then. The recurring messages that are not among
    `open_names` have ended, if that is known.
    """
    index.early_ms = {name: ms for name, ms in index.early_ms.items() if ms > mark_ms}
    is_new = any(it.stage == Stage.GIVEN for it in index.recurring)
    for it in index.logs():
        if it.stage == Stage.GIVEN:
            it.stage, it.is_again = Stage.TAKEN, False
        if it.stage == Stage.TAKEN and it.rules:
            it.settled_ms = max(mark_ms, it.settled_ms or 0)
    # Late messages still wait if their deliverer does not answer; a given part may have settled rows too.
    over_ms = min([mark_ms, *(part.since_ms - 1 for part in index.parts())])
    index.controls = [it for it in index.controls if it.stage < Stage.TAKEN or it.until_ms > over_ms]
    is_over = any(it.stage == Stage.TAKEN and it.others and it.until_ms <= over_ms for it in index.recurring)
    if is_new or is_over or (open_names is not None and index.rules):
        index.recurring = _without_ended(index.recurring, chunks, over_ms, open_names)
    index.controls, index.recurring = (_joined(log, chunks) for log in (index.controls, index.recurring))


def settle_all(index: Index) -> None:
    """The same without marks: given rows are gone."""
    index.controls, index.recurring = (
        [it for it in log if it.stage < Stage.GIVEN] for log in (index.controls, index.recurring)
    )
    index.early_ms, index.asked_ms = {}, 0


def _without_ended(log: Sequence[Log], chunks: Chunks, over_ms: int, open_names: Collection[Name] | None) -> list[Log]:
    """The log without the rows that the taker has and no other store needs. Of two recurring messages with the same
    content the first stays: another store would begin the second one later.
    """
    is_open = None if open_names is None else {*open_names}
    last: dict[Name, tuple[Any, int, Any]] = {}
    left = []
    for it in log:
        if it.stage < Stage.TAKEN:
            break
        rows = chunks.get(it.chunk)
        names, is_rule, is_asked = names_of(rows), _is_rule(rows), _is_asked(rows)
        stays = ~(is_asked & _is_move(rows)) & (it.until_ms > over_ms)
        for at in np.flatnonzero(is_rule | (is_asked & _is_cancel(rows))).tolist():
            name, content = names[at], _content(rows, at) if is_rule[at] else None
            earlier, place, earlier_content = last.pop(name, (None, at, None))
            if earlier is not None and content == earlier_content:
                stays[at], last[name] = False, (earlier, place, content)
                continue
            if earlier is not None:
                earlier[place] = False
            if is_rule[at]:
                stays[at] = is_open is None or name in is_open
                last[name] = stays, at, content
        left.append((it, rows, stays))
    return [*(one for it, rows, stays in left for one in _left(it, chunks, rows, stays)), *log[len(left) :]]


def _content(rows: Any, at: int) -> Any:
    """The content of a recurring message. The start is part of it only if it was given as a time, not as a delay."""
    told = msgspec.json.decode(rows["recurrence"][at].as_py())
    return rows["payload"][at].as_py(), {name: value for name, value in told.items() if name != "from" or told["given"]}


def _joined(log: Sequence[Log], chunks: Chunks) -> list[Log]:
    """The log with few chunks: small ones that follow each other are joined if there are many."""
    if sum(it.stage == Stage.TAKEN and it.is_small for it in log) <= _MANY:
        return [*log]
    joined: list[Log] = []
    for is_small, some in groupby(log, key=lambda it: it.stage == Stage.TAKEN and it.is_small):
        each = [*some]
        if is_small and len(each) > 1:
            settled = [it.settled_ms for it in each if it.settled_ms is not None]
            like = replace(each[0], until_ms=max(it.until_ms for it in each), settled_ms=min(settled, default=None))
            rows = pa.concat_batches([chunks.get(it.chunk) for it in each])
            each = [_log(chunks, chunk, like) for chunk in cut(rows)]
        joined += each
    return joined


def take_back(index: Index) -> None:
    """It is not known whether the taker has what it was given last."""
    for it in index.logs():
        if it.stage == Stage.GIVEN:
            it.stage = Stage.UNSURE


def forget_taker(index: Index) -> None:
    """Another store gets everything."""
    for it in index.logs():
        it.is_again |= it.stage > Stage.WAITS
        it.stage = Stage.WAITS


# --- Rows ---------------------------------------------------------------------


def _left(it: Log, chunks: Chunks, rows: Any, stays: Any) -> Iterator[Log]:
    """The log's chunk with only the rows that stay; nothing if no row stays."""
    if stays.all():
        yield it
    elif stays.any():
        yield _log(chunks, rows.filter(pa.array(stays)), it)


def _is_rule(rows: Any) -> Any:
    return _has(rows, "recurrence")


def _is_cancel(rows: Any) -> Any:
    return _has(rows, "id") & ~_has(rows, "due_ms") & ~_is_rule(rows)


def _is_move(rows: Any) -> Any:
    return _has(rows, "due_ms") & ~_has(rows, "payload")


def _is_asked(rows: Any) -> Any:
    return _has(rows, "asked_ms")


def _has(rows: Any, column: str) -> Any:
    return pc.is_valid(rows.column(column)).to_numpy(zero_copy_only=False)


def _occurrence_of(name: Name) -> tuple[Name, int] | None:
    """Of an occurrence: the name of the recurring message, and when it is due by that."""
    of, _, due = (name[1] or "").rpartition("@")
    try:
        due_ms = round(datetime.fromisoformat(due).timestamp() * 1000)
    except ValueError:
        return None
    return (name[0], of), due_ms
