"""Each scenario on each surface: one table, so that no surface means something else by a word than the others."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivery.conformance.scenarios import PAST, SCENARIOS, Arrived, Away, Do, Due, Ended, Fails, Letters, Refuse, Step
from delivery.conformance.surfaces import SURFACES
from tickwheel.delivery import StoreView

pytestmark = pytest.mark.timeout(60)
WITHIN_S = 20.0


def has_a_way(surface: Any, steps: tuple[Step, ...]) -> bool:
    return not surface.without & {
        name for step in steps if isinstance(step, Do) for name, value in step.fields.items() if value is not None
    }


PAIRS = [(kind, name) for name, steps in SCENARIOS.items() for kind in SURFACES if has_a_way(SURFACES[kind], steps)]


@pytest.fixture
def surface(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    opened = SURFACES[request.param](tmp_path)
    yield opened
    opened.close()


def wait_for(expected: Any, ask: Any) -> None:
    end_s = time.monotonic() + WITHIN_S
    while (found := ask()) != expected:
        assert time.monotonic() < end_s, found
        time.sleep(0.002)


def take(surface: Any, step: Step) -> None:
    match step:
        case Do(op, answer, fields):
            assert surface.do(op, fields) in (answer, None)
        case Refuse(ids):
            surface.destination.refused = ids
        case Away(ids):
            surface.destination.away = ids
        case Fails(id_, key):
            wait_for(True, lambda: waits_for_next_try(surface, id_, key))
        case Due(id_, text, key):
            assert surface.due(id_, key).endswith(text)
        case Arrived(messages, redelivered):
            got = surface.destination.take(len(messages), WITHIN_S)
            came = [(it.message.id, json.dumps(json.loads(bytes(it.message.payload)))) for it in got]
            messages = tuple((id_, json.dumps(payload)) for id_, payload in messages)  # 1 is not true
            by_key = len({it.message.key for it in got}) <= 1 and got[0].message.key is not None if got else False
            order = list if by_key else sorted_by_id  # the order of different keys is open
            assert order(came) == order(messages)
            assert {it.redelivered for it in got} == {redelivered}
            assert all(it.lateness_ms >= 0 for it in got)
        case Ended(id_, state, key):
            wait_for(state, lambda: surface.do("state", {"id": id_, "key": key}))
        case Letters(ids):
            wait_for(ids, lambda: frozenset(surface.letters))


def waits_for_next_try(surface: Any, id_: str, key: str | None) -> bool:
    shown = StoreView(surface.store).show(id_, key)
    return shown is not None and shown.next_try is not None


def sorted_by_id(messages: Any) -> list[Any]:
    return sorted(messages, key=lambda it: str(it[0]))


@pytest.mark.parametrize(("surface", "scenario"), PAIRS, indirect=["surface"])
def test_a_scenario_is_the_same_on_every_surface(surface: Any, scenario: str) -> None:
    steps = SCENARIOS[scenario]
    for number, step in enumerate(steps):
        try:
            take(surface, step)
        except BaseException as error:  # also the end of its time
            error.add_note(f"step {number + 1}: {step}")
            raise
    surface.destination.refused = frozenset()
    assert surface.do("put", {"id": "the last", "payload": 0, "due": PAST}) in ("accepted", None)
    assert [it.message.id for it in surface.destination.take(1, WITHIN_S)] == ["the last"], "nothing else came"
