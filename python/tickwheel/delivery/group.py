"""What one transaction does for what was handed in and for outcomes; and what has to follow once it is committed."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from tickwheel.delivery.dispatcher import Dispatcher, TakenBack
from tickwheel.delivery.items import OTHER_CONTENT, Answer, Dropped, Item, Look, Put, letter_of
from tickwheel.delivery.message import Cancel
from tickwheel.delivery.store import Done, Incoming, Known, Outcome, Store, inputs
from tickwheel.delivery.store.inputs import Progress
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.summary import Summary

_DAY_MS: Final = 86_400_000


class Group:
    """Made for one transaction, and used inside it."""

    def __init__(self, store: Store, dispatcher: Dispatcher, now_ms: int) -> None:
        self.fresh: dict[int, Incoming] = {}
        self.letters: list[Letter] = []
        self.counts = Summary()
        self.lateness_us: list[int] = []
        self.taken_back: list[int] = []
        self._store = store
        self._dispatcher = dispatcher
        self._now_ms = now_ms

    def apply(self, items: Iterable[Item]) -> list[Answer]:
        """Whatever a ticket asks for, in order; messages that follow each other at once."""
        answers: list[Answer] = []
        for kind, run in groupby(items, type):
            if kind is Put:
                answers += self._accept(list(run))  # type: ignore[arg-type]
            else:
                answers += [answer for item in run if (answer := self._one(item)) is not None]
        return answers

    def finish(self, done: Sequence[Done], dead: Sequence[Letter]) -> None:
        """These have their outcome; the dead among them have a letter each."""
        self._store.finish(done)
        self.lateness_us = [one.lateness_us for one in done if one.lateness_us is not None]
        self.letters += dead
        self.counts.delivered += len(done) - len(dead)
        self.counts.dead_letters += len(dead)
        self.counts.undeliverable += len(dead)

    def _one(self, item: Item) -> Answer | None:
        match item:
            case Cancel():
                return self._cancel(item)
            case Look():
                return self._look(item)
            case Letter():
                self.letters.append(item)
                self.counts.dead_letters += 1
            case Progress():
                inputs.put(self._store.db, item)
            case Dropped():
                self.counts.duplicates += item.count
        return None

    def _accept(self, puts: Sequence[Put]) -> list[Answer]:
        answers, before = [], len(self.fresh)
        new = Answer.ACCEPTED
        for put, known in zip(puts, self._store.accept([put.incoming for put in puts], self._now_ms), strict=True):
            if isinstance(known, int):
                self.fresh[known] = put.incoming
                answers.append(new)
            elif known is None:
                self.counts.accepted += 1
                self.counts.cancelled += 1
                answers.append(Answer.CANCELLED)
            else:
                answers.append(self._again(put, known))
        self.counts.accepted += len(self.fresh) - before
        return answers

    def _again(self, put: Put, known: Known) -> Answer:
        if known.content != put.incoming.content:
            if put.record is not None:
                self.letters.append(letter_of(put.record, OTHER_CONTENT))
                self.counts.dead_letters += 1
            return Answer.OTHER_CONTENT
        self.counts.duplicates += 1
        return Answer.DUPLICATE

    def _cancel(self, cancel: Cancel) -> Answer:
        known = self._store.find(cancel.key, cancel.id)
        if known is None:
            until_ms = self._now_ms + cancel.keep_days * _DAY_MS
            self._store.remember_cancel(cancel.key, cancel.id, self._now_ms, until_ms)
            return Answer.UNKNOWN
        answer = self._state(known)
        if answer is Answer.WAITING:
            if self._dispatcher.take_back(known.seq) in (TakenBack.TAKEN, TakenBack.ABSENT):
                self.fresh.pop(known.seq, None)
                self.taken_back.append(known.seq)
                self._store.finish([Done(known.seq, known.due_ms, Outcome.CANCELLED, self._now_ms)])
                self.counts.cancelled += 1
                return Answer.CANCELLED
            answer = self._state(known)
            if answer is Answer.WAITING:  # it was about to be sent, and would have been early
                answer = Answer.DELIVERING
        if answer is Answer.CANCELLED:
            self.counts.duplicates += 1
        else:
            self.counts.cancels_too_late += 1
        return answer

    def _look(self, look: Look) -> Answer:
        known = self._store.find(look.key, look.id)
        return Answer.UNKNOWN if known is None else self._state(known)

    def _state(self, known: Known) -> Answer:
        if known.outcome is Outcome.CANCELLED:
            return Answer.CANCELLED
        if known.outcome is Outcome.DEAD:
            return Answer.DEAD
        if not self._store.is_waiting(known):
            return Answer.DELIVERED
        return self._dispatcher.state_of(known.seq)
