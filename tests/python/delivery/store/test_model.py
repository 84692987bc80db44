"""The store against a dictionary: any calls in any order, a crash anywhere, colliding numbers of names."""

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delivery.store.making import accept
from tickwheel.delivery.errors import StoreFailed
from tickwheel.delivery.message import Message
from tickwheel.delivery.store import Done, Incoming, Outcome, Store, ids, store
from tickwheel.delivery.store.housekeeping import Housekeeping

DAY_MS = 86_400_000

Name = tuple[str | None, str]


class Crash(Exception):
    """The point at which a test ends the process."""


@dataclass
class Row:
    seq: int
    due_ms: int
    payload: int
    outcome: Outcome | None = None
    at_ms: int = 0


@dataclass
class Model:
    """The expected contents of the store, in the simplest form."""

    known: dict[Name, Row] = field(default_factory=dict)
    cancels: set[Name] = field(default_factory=set)
    last_seq: int = 0

    def copy(self) -> "Model":
        return Model({name: replace(row) for name, row in self.known.items()}, set(self.cancels), self.last_seq)

    def accept(self, name: Name, due_ms: int, payload: int) -> tuple[int, Outcome | None, bool]:
        if row := self.known.get(name):
            return row.seq, row.outcome, False
        self.last_seq += 1
        outcome = Outcome.CANCELLED if name in self.cancels else None
        self.cancels.discard(name)
        self.known[name] = Row(self.last_seq, due_ms, payload, outcome)
        return self.last_seq, outcome, True

    @property
    def waiting(self) -> list[tuple[int, int]]:
        return sorted((row.due_ms, row.seq) for row in self.known.values() if row.outcome is None)


NAMES: list[Name] = [(key, id_) for key in (None, "k", "\0") for id_ in ("a", "b", "a\0", "é", "'; --")]

names = st.sampled_from(NAMES)
actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("accept"),
            st.lists(st.tuples(names, st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=5),
        ),
        st.tuples(st.just("cancel"), names),
        st.tuples(st.just("finish"), st.integers(0, 99), st.sampled_from(list(Outcome))),
        st.tuples(st.just("housekeeping"), st.booleans()),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=40,
)


@contextlib.contextmanager
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names share eight numbers, in two shards, and two new ones in a shard are enough to merge it."""
    with monkeypatch.context() as patch:
        plain = store.name_of
        patch.setattr(store, "name_of", lambda key, id_: ((plain(key, id_) & 7) - 4) << 61)
        patch.setattr(ids, "SHARD_BITS", 1)
        patch.setattr(ids, "MERGE_AT", 2)
        yield


def incoming(name: Name, due_ms: int, payload: int) -> Incoming:
    return Incoming.of(Message(name[1], name[0], due_ms, msgspec.Raw(str(payload).encode())))


def check_same(stored: Store, model: Model) -> None:
    with stored.transaction():
        assert [row.position for row in stored.plan((-1, 0), 1 << 60, 1000)] == model.waiting
        assert stored.waiting == len(model.waiting)
        assert stored.remembered_cancels == len(model.cancels)
        assert stored.last_seq == model.last_seq
        for key, id_ in NAMES:
            found, row = stored.find(key, id_), model.known.get((key, id_))
            assert (found is None) == (row is None), (key, id_)
            if found is not None and row is not None:
                written = row.outcome if row.outcome is not Outcome.DELIVERED else None
                assert (found.seq, found.due_ms, found.outcome) == (row.seq, row.due_ms, written)
                assert stored.is_waiting(found) == (row.outcome is None)
        bodies = stored.messages(row.seq for row in model.known.values() if row.outcome is None)
        assert {seq: (it.key, it.id, it.due_ms, bytes(it.payload)) for seq, it in bodies.items()} == {
            row.seq: (key, id_, row.due_ms, str(row.payload).encode())
            for (key, id_), row in model.known.items()
            if row.outcome is None
        }


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions, st.integers(1, 4))
def test_whatever_is_called_and_wherever_it_crashes_the_store_knows_what_was_committed__D5(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    actions: list[tuple[str, object]],
    group: int,
) -> None:
    with narrow(monkeypatch):
        Run(tmp_path_factory.mktemp("model") / "store.db").go(actions, group)


class Run:
    """Applies `group` actions in each transaction, to store and model; a crash resets the model to the last commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store(path)
        self.model = Model()
        self.housekeeping = Housekeeping(self.store, DAY_MS)
        self.now_ms = 1_000

    def go(self, actions: list[tuple[str, object]], group: int) -> None:
        try:
            while actions:
                part, actions = actions[:group], actions[group:]
                committed = self.model.copy()
                try:
                    with self.store.transaction():
                        for action in part:
                            self.do(*action)
                except Crash:
                    self.model = committed
                    self.reopen()
                check_same(self.store, self.model)
                if any(what == "reopen" for what, *_ in part):
                    self.reopen()
                    check_same(self.store, self.model)
        finally:
            self.store.close()

    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.path)
        self.housekeeping = Housekeeping(self.store, DAY_MS)

    def do(self, what: str, *values: object) -> None:
        self.now_ms += 1
        if what == "accept":
            wanted = values[0]
            answers = accept(self.store, [incoming(*one) for one in wanted], self.now_ms)  # type: ignore[attr-defined]
            for (known, is_new), one in zip(answers, wanted, strict=True):  # type: ignore[call-overload]
                seq, outcome, was_new = self.model.accept(*one)
                assert (known.seq, is_new) == (seq, was_new)
                if is_new:
                    assert known.outcome == outcome
                assert (known.content == incoming(*one).content) == (
                    (one[1], one[2]) == (self.model.known[one[0]].due_ms, self.model.known[one[0]].payload)
                )
        elif what == "cancel":
            key, id_ = values[0]  # type: ignore[misc]
            row = self.model.known.get((key, id_))
            if row is None:
                self.store.remember_cancel(key, id_, self.now_ms)
                self.model.cancels.add((key, id_))
        elif what == "finish":
            place, outcome = values
            left = [row for row in self.model.known.values() if row.outcome is None]
            if left:
                row = left[place % len(left)]  # type: ignore[operator]
                row.outcome, row.at_ms = outcome, self.now_ms  # type: ignore[assignment]
                self.store.finish([Done(row.seq, row.due_ms, row.outcome, self.now_ms)])  # type: ignore[arg-type]
        elif what == "housekeeping":
            self.housekeeping.step(self.now_ms, is_idle=bool(values[0]))
        elif what == "crash":
            raise Crash


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_in_the_middle_of_a_merge_forgets_no_name__D5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    with narrow(monkeypatch):
        path = tmp_path / "store.db"
        known: dict[str, int] = {}
        stored = Store(path)
        for number in range(60):
            is_lost = rng.random() < 0.2
            with contextlib.suppress(Crash), stored.transaction():
                before = dict(known)
                for copy in range(rng.randrange(1, 4)):
                    [(one, is_new)] = accept(stored, [incoming((None, f"{number}.{copy}"), 5, 0)])
                    assert is_new
                    known[f"{number}.{copy}"] = one.seq
                stored.ids.merge_some()
                if is_lost:
                    known = before
                    raise Crash
            if is_lost or rng.random() < 0.2:
                stored.close()
                stored = Store(path)
            with stored.transaction():
                found = {id_: one.seq for id_ in known if (one := stored.find(None, id_))}
            assert found == known
        stored.close()
        db = sqlite3.connect(path)
        assert db.execute("SELECT value FROM meta WHERE name = 'merged_seq'").fetchone()[0] > 20, "nothing was merged"
        db.close()


def test_memory_holds_only_the_newest_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "MERGE_AT", 5)
    stored = Store(tmp_path / "store.db")
    most = 5 << ids.SHARD_BITS
    for number in range(10 * most):
        with stored.transaction():
            stored.accept([incoming((None, str(number)), 5, 0)], 0)
            stored.ids.merge_some()
        assert len(stored.ids._newest) <= most
        assert sum(map(len, stored.ids._shards)) == len(stored.ids._newest)
    [(rows,)] = stored.db.execute("SELECT count(*) FROM ids")
    assert rows + len(stored.ids._newest) == 10 * most
    stored.close()


def test_what_a_failed_transaction_did_is_not_on_disk__D5(tmp_path: Path) -> None:
    stored = Store(tmp_path / "store.db")
    with pytest.raises(StoreFailed, match="no such table"), stored.transaction():  # noqa: PT012
        stored.accept([incoming((None, "a"), 5, 0)], 0)
        stored.db.execute("SELECT * FROM nowhere")
    stored.close()
    again = Store(tmp_path / "store.db")
    assert (again.find(None, "a"), again.waiting) == (None, 0)
    again.close()
