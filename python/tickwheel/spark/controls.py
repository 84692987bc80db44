"""What a shard keeps beside the messages that wait: cancels, reschedules and dead letters, and recurring messages.

They are given at once. Controls stay until all messages that waited when they came are settled, because a store that
replaces a lost store must know them too. A recurring message is given to the deliverer unchanged, and the deliverer
makes its occurrences. The shard keeps it until another message or a cancel of its name comes. A store that replaces a
lost store goes on at the last instant until which the lost store had settled all.

Each row may be given twice. Three rules follow:

- The cancel of a recurring message is dropped once another message of its name has come, because it would end that one.
- Only the last reschedule of a message is kept, because an earlier one would undo it.
- A row that a deliverer would drop as a duplicate is not given.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tickwheel._native import occurrence_after
from tickwheel.spark.chunks import Chunks
from tickwheel.spark.packing import as_repeats, digest_of, replaced
from tickwheel.spark.packing import chunks as cut
from tickwheel.spark.shard_index import NOBODY, Controls, Index

_MANY: Final = 64
_FOR_RULES_MS: Final = 0
"""Until when controls of recurring messages are kept: as soon as the taker has them, and not for another store."""


def keep(index: Index, chunks: Chunks, rows: Any, now_ms: int, until_ms: int) -> None:
    """Keep the rows that are not messages to hold. Rows about recurring messages are kept apart, after the others."""
    rows = _without_older_moves(index, chunks, rows)
    parts = [(rows, until_ms)]
    if index.rules or _is_rule(rows).any():
        others, rules, about_rules = _sorted_out(index, chunks, rows, now_ms)
        parts = [(others, until_ms), (rules, until_ms)]
        parts += [(some, _FOR_RULES_MS if is_for_rules else until_ms) for some, is_for_rules in about_rules]
    for part, part_until_ms in parts:
        for chunk in cut(part) if part.num_rows else ():
            index.controls.append(_controls(chunks, chunk, part_until_ms))


def _without_older_moves(index: Index, chunks: Chunks, rows: Any) -> Any:
    """These rows with the last reschedule of each name. Earlier reschedules that the taker may yet get are dropped."""
    is_move = _is_move(rows)
    if not is_move.any():
        return rows
    names = _names(rows)
    last = {names[at]: at for at in np.flatnonzero(is_move).tolist()}
    index.controls = [*_without_moves(index, chunks, last.keys())]
    stays = [not moves or last[name] == at for at, (moves, name) in enumerate(zip(is_move, names, strict=True))]
    return rows if all(stays) else rows.filter(pa.array(stays))


def _without_moves(index: Index, chunks: Chunks, names: Set[Any]) -> Iterator[Controls]:
    """The kept controls without the reschedules of these names that the taker may yet get."""
    for it in index.controls:
        rows = None if it.is_taken or it.until_ms == _FOR_RULES_MS else chunks.get(it.chunk)
        if rows is None or not (is_move := _is_move(rows)).any():
            yield it
            continue
        is_older = [moves and name in names for moves, name in zip(is_move, _names(rows), strict=True)]
        yield from _left(it, chunks, rows, [not older for older in is_older])


def _left(it: Controls, chunks: Chunks, rows: Any, stays: Sequence[bool]) -> Iterator[Controls]:
    """The controls with only the rows that stay; nothing if no row stays."""
    if all(stays):
        yield it
    elif any(stays):
        yield _copy(it, chunks, rows.filter(pa.array(stays)))


def _sorted_out(index: Index, chunks: Chunks, rows: Any, now_ms: int) -> tuple[Any, Any, Sequence[tuple[Any, bool]]]:
    """Three groups: rows without a link to recurring messages; recurring messages; and changes of them or of their
    occurrences, in order, in pieces that say whether they are for recurring messages. A known recurring message is left
    out. A new one drops the earlier cancels and reschedules of its name.
    """
    known: dict[Any, Any] = {}
    ended: dict[Any, Any] = {}
    for it in index.controls:
        if it.rules:
            known |= {name: content for name, content in _contents(chunks.get(it.chunk)) if content is not None}
        elif it.until_ms == _FOR_RULES_MS:
            kept = chunks.get(it.chunk)
            names = _names(kept.filter(pa.array(_is_cancel(kept))))
            ended |= {name: known.pop(name) for name in names if name in known}
    is_cancel, is_move = _is_cancel(rows), _is_move(rows)
    others, rules, for_rules, for_occurrences = [], [], [], []
    again: dict[Any, int] = {}
    for at, (name, content) in enumerate(_contents(rows)):
        if content is not None:
            if content not in (known.get(name), ended.get(name)):
                known[name], again[name] = content, at
                ended.pop(name, None)
                rules.append(at)
        elif (is_move[at] or is_cancel[at]) and (of := _occurrence_of(name)) and of[0] in known:
            digest = digest_of(of[0])
            index.early_ms[digest] = max(of[1], index.early_ms.get(digest, 0))
            for_occurrences.append(at)
        elif (name in known or name in ended) and (is_cancel[at] or is_move[at]):
            for_rules.append(at)
            if is_cancel[at] and name in known:
                ended[name] = known.pop(name)
        else:
            others.append(at)
    names = _names(rows)
    last = {names[at]: at for at in for_rules if is_move[at]}
    for_rules = [at for at in for_rules if again.get(names[at], -1) < at and (is_cancel[at] or last[names[at]] == at)]
    if again:
        index.controls = [*_without_older(index, chunks, again.keys())]
    if last:
        index.asked_ms = max(index.asked_ms + 1, now_ms)
    about_rules = []
    is_for_rules = dict.fromkeys(for_rules, True) | dict.fromkeys(for_occurrences, False)
    for is_for_rule, some in groupby(sorted(is_for_rules), key=is_for_rules.__getitem__):
        places = [*some]
        piece = rows.take(pa.array(places, pa.int64()))
        if is_for_rule:
            piece = replaced(piece, asked_ms=[index.asked_ms if is_move[at] else None for at in places])
        about_rules.append((piece, is_for_rule))
    found = [rows.take(pa.array(some, pa.int64())) for some in (others, rules)]
    return found[0], found[1], about_rules


def _note_early(index: Index, chunks: Chunks, names: Set[Any], now_ms: int) -> None:
    """Note that the next occurrences of these recurring messages may be sent before their time. It is noted each time
    that a reschedule is given, because the taker may have applied it before, to an earlier occurrence.
    """
    rules: dict[Any, str] = {}
    for it in index.controls:
        if it.rules:
            rows = chunks.get(it.chunk)
            known = zip(_names(rows), rows.column("recurrence").to_pylist(), strict=True)
            rules |= {name: rule for name, rule in known if rule is not None and name in names}
    for name, rule in rules.items():
        digest = digest_of(name)
        index.early_ms[digest] = occurrence_after(rule, max(now_ms, index.early_ms.get(digest, 0)))


def _without_older(index: Index, chunks: Chunks, names: Set[Any]) -> Iterator[Controls]:
    """The kept controls, without changes of older recurring messages of these names that the taker may yet get."""
    for it in index.controls:
        if it.is_taken or it.until_ms != _FOR_RULES_MS:
            yield it
            continue
        rows = chunks.get(it.chunk)
        yield from _left(it, chunks, rows, [name not in names for name in _names(rows)])


def give(
    index: Index, chunks: Chunks, now_ms: int, near_ms: int, *, no_new_rules: bool, most_bytes: int
) -> Iterator[Any]:
    """Give the taker the rows that it does not know, in the order in which they came. A store before it may have done
    everything that is due until `near_ms`. `most_bytes`: about how many bytes of new recurring messages are given; the
    others are given later.
    """
    waits = False
    size = 0
    for it in index.controls:
        is_again = it.given_to == index.taker
        waits |= it.rules > 0 and not is_again and (size >= most_bytes or no_new_rules)
        if it.is_given or (waits and not is_again and (it.rules or it.until_ms == _FOR_RULES_MS)):
            continue
        may_be_known = it.given_to != NOBODY
        is_elsewhere = it.given_to not in (NOBODY, index.taker)
        it.may_repeat |= is_elsewhere
        it.given_to, it.is_given = index.taker, True
        rows = as_repeats(chunks.get(it.chunk)) if may_be_known else chunks.get(it.chunk)
        if it.may_repeat and it.rules:
            settled = dict.fromkeys(_names_of_rules(rows), it.settled_ms)
            rows = _going_on(rows, settled, near_ms, index.early_ms)
        if it.until_ms == _FOR_RULES_MS:
            moved = {name for name, moves in zip(_names(rows), _is_move(rows), strict=True) if moves}
            _note_early(index, chunks, moved, now_ms)
        size += rows.nbytes if it.rules and not is_again else 0
        yield rows


def settle(index: Index, chunks: Chunks, mark_ms: int | None, open_names: Set[Any] | None = None) -> None:
    """The taker has what it was given, and has settled all until then; without a mark nothing is needed any more. The
    recurring messages that are not among `open_names` have ended, if that is known.
    """
    if mark_ms is None:
        index.controls = [it for it in index.controls if not it.is_given]
        index.early_ms = {}
        return
    index.early_ms = {name: ms for name, ms in index.early_ms.items() if ms > mark_ms}
    if not index.controls:
        return
    for it in index.controls:
        if it.is_given:
            it.is_taken, it.may_repeat = True, False
            if it.rules:
                it.settled_ms = max(mark_ms, it.settled_ms or 0)
    if open_names is not None and index.rules:
        index.controls = [*_without_ended(index, chunks, open_names)]
    # Late messages still wait if their deliverer does not answer; a given part may have settled rows too.
    over_ms = min([mark_ms, *(part.first_ms - 1 for part in index.parts())])
    is_over = any(it.others and it.is_taken and it.until_ms <= over_ms for it in index.controls)
    if is_over or sum(it.is_taken and it.is_small for it in index.controls) > _MANY:
        _tidy(index, chunks, over_ms)


def _without_ended(index: Index, chunks: Chunks, open_names: Set[Any]) -> Iterator[Controls]:
    for it in index.controls:
        if not (it.rules and it.is_taken):
            yield it
            continue
        rows = chunks.get(it.chunk)
        is_open = [name in open_names for name in _names(rows)]
        yield from _left(it, chunks, rows, (~_is_rule(rows) | is_open).tolist())


def take_back(index: Index) -> None:
    """It is not known whether the taker has what it was given last."""
    for it in index.controls:
        it.is_given = it.is_taken


def forget_taker(index: Index, chunks: Chunks, near_ms: int) -> None:
    """Another store gets everything: the last row of each name. A recurring message that replaces another goes on where
    the other was.
    """
    if index.rules:
        settled = _settled(index, chunks)
        for it in index.controls:
            it.is_taken = True  # by nobody else any more
        _tidy(index, chunks, None)
        index.controls = [_inheriting(it, chunks, settled, near_ms, index.early_ms) for it in index.controls]
        index.controls = [left for it in index.controls for left in _for_another(it, chunks)]
    for it in index.controls:
        it.is_given = it.is_taken = False


def _for_another(it: Controls, chunks: Chunks) -> Iterator[Controls]:
    """The next occurrence is another one by now, and the store does not know the occurrence that was to be cancelled.
    But a reschedule that no store got still has to be done.
    """
    if it.until_ms != _FOR_RULES_MS:
        yield it
    elif it.given_to == NOBODY:
        rows = chunks.get(it.chunk)
        yield from _left(it, chunks, rows, _is_move(rows).tolist())


def _settled(index: Index, chunks: Chunks) -> dict[Any, int | None]:
    """For each name: until when its recurring messages are settled. Only for messages that a store was given."""
    found: dict[Any, int | None] = {}
    for it in index.controls:
        if it.rules and (it.given_to != NOBODY or it.settled_ms is not None):
            for name in _names_of_rules(chunks.get(it.chunk)):
                told = [ms for ms in (it.settled_ms, found.get(name)) if ms is not None]
                found[name] = max(told, default=None)
    return found


def _inheriting(
    it: Controls, chunks: Chunks, settled: Mapping[Any, int | None], near_ms: int, early_ms: Mapping[int, int]
) -> Controls:
    rows = chunks.get(it.chunk)
    names = [name for name in _names_of_rules(rows) if name in settled]
    mine = {name: settled[name] for name in names if it.given_to == NOBODY or settled[name] != it.settled_ms}
    return _copy(it, chunks, _going_on(rows, mine, near_ms, early_ms)) if mine else it


def _tidy(index: Index, chunks: Chunks, over_ms: int | None) -> None:
    """Drop the rows that are over by then. Drop recurring messages, cancels and reschedules if the taker has a later
    row of their name. Join small chunks if there are many.
    """
    later: set[Any] = set()
    later_moves: set[Any] = set()
    kept: list[Controls] = []
    for it in reversed(index.controls):
        rows = chunks.get(it.chunk)
        is_rule = _is_rule(rows)
        stays = is_rule | (not it.is_taken or over_ms is None or it.until_ms > over_ms)
        is_move = _is_move(rows)
        if index.rules or is_move.any():
            names = _names(rows)
            for at in reversed(np.flatnonzero(is_move).tolist()):
                stays[at] &= names[at] not in later_moves
                if it.is_taken:
                    later_moves.add(names[at])
        if index.rules:
            for at in reversed(np.flatnonzero(is_rule | _is_cancel(rows)).tolist()):
                stays[at] &= names[at] not in later
                if it.is_taken:
                    later.add(names[at])
        if not stays.all():
            rows = rows.filter(pa.array(stays))
            if not rows.num_rows:
                continue
            it = _copy(it, chunks, rows)
        kept.append(it)
    kept.reverse()
    taken = [it for it in kept if it.is_taken]
    small = [it for it in taken if it.is_small]
    if over_ms is not None and len(small) > _MANY:  # large ones are not written again and again
        joined = *_joined(chunks, small, rules=True), *_joined(chunks, small, rules=False)
        taken = [*(it for it in taken if not it.is_small), *joined]
    index.controls = [*taken, *(it for it in kept if not it.is_taken)]


def _joined(chunks: Chunks, many: Sequence[Controls], *, rules: bool) -> Iterator[Controls]:
    """The recurring messages of these controls, or the other rows, in few chunks. Each name is there once."""
    some = [it for it in many if (it.rules if rules else it.others)]
    if not some:
        return
    rows = pa.concat_batches([chunks.get(it.chunk) for it in some])
    settled = [it.settled_ms for it in some if it.settled_ms is not None]
    like = msgspec.structs.replace(
        some[0], until_ms=max(it.until_ms for it in some), settled_ms=min(settled, default=None)
    )
    for chunk in cut(rows.filter(pa.array(_is_rule(rows) == rules))):
        yield _copy(like, chunks, chunk)


def _controls(chunks: Chunks, rows: Any, until_ms: int) -> Controls:
    rules = int(_is_rule(rows).sum())
    return Controls(chunks.put(rows), until_ms, rules, rows.num_rows - rules, size=rows.nbytes)


def _copy(it: Controls, chunks: Chunks, rows: Any) -> Controls:
    rules = int(_is_rule(rows).sum())
    return msgspec.structs.replace(
        it, chunk=chunks.put(rows), rules=rules, others=rows.num_rows - rules, size=rows.nbytes
    )


def _is_rule(rows: Any) -> Any:
    return pc.is_valid(rows.column("recurrence")).to_numpy(zero_copy_only=False)


def _is_cancel(rows: Any) -> Any:
    has_name = pc.is_valid(rows.column("id")).to_numpy(zero_copy_only=False)
    has_time = pc.is_valid(rows.column("due_ms")).to_numpy(zero_copy_only=False)
    return has_name & ~has_time & ~_is_rule(rows)


def _is_move(rows: Any) -> Any:
    has_time = pc.is_valid(rows.column("due_ms")).to_numpy(zero_copy_only=False)
    return has_time & ~pc.is_valid(rows.column("payload")).to_numpy(zero_copy_only=False)


def _contents(rows: Any) -> Iterator[tuple[Any, Any]]:
    """The name of each row; for a recurring message also its content, to tell it from an earlier one."""
    payloads = rows.column("payload").to_pylist()
    for name, rule, payload in zip(_names(rows), rows.column("recurrence").to_pylist(), payloads, strict=True):
        if rule is None:
            yield name, None
            continue
        told = {what: value for what, value in msgspec.json.decode(rule).items() if what != "before"}
        if not told.get("given"):
            told.pop("from", None)
        yield name, (payload, tuple(sorted(told.items())))


def _names(rows: Any) -> Sequence[tuple[str | None, str]]:
    return [*zip(rows.column("key").to_pylist(), rows.column("id").to_pylist(), strict=True)]


def _occurrence_of(name: tuple[str | None, str]) -> tuple[tuple[str | None, str], int] | None:
    """Of an occurrence: the name of the recurring message, and when it is due by that."""
    of, _, due = name[1].rpartition("@")
    try:
        due_ms = round(datetime.fromisoformat(due).timestamp() * 1000)
    except ValueError:
        return None
    return (name[0], of), due_ms


def _names_of_rules(rows: Any) -> Sequence[tuple[str | None, str]]:
    return _names(rows.filter(pa.array(_is_rule(rows))))


def _going_on(rows: Any, settled: Mapping[Any, int | None], sent_ms: int, early_ms: Mapping[int, int]) -> Any:
    """The recurring messages of these names for a store that replaces another. The replaced store has settled all until
    then. It may have sent everything that is due until `sent_ms`; some messages have a later time of their own.
    """
    told = []
    for name, rule in zip(_names(rows), rows.column("recurrence").to_pylist(), strict=True):
        if rule is not None and name in settled:
            it = msgspec.json.decode(rule)
            known = [ms for ms in (settled[name], it.get("before", {}).get("settled_ms")) if ms is not None]
            until_ms = max(sent_ms, early_ms.get(digest_of(name), 0))
            it["before"] = {"settled_ms": max(known, default=None), "sent_ms": until_ms}
            rule = msgspec.json.encode(it).decode()
        told.append(rule)
    return replaced(rows, recurrence=told)
