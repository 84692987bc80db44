"""The corpus of broken records: each becomes a dead letter with its reason; the good records beside it do not."""

import pytest

from delivery.corpus.cases import CASES
from delivery.corpus.making import OK, Case
from delivery.records import READERS, Found
from tickwheel.delivery.model.message import Columns

NOW_NS = 10**18


def reason_of(found: Found) -> str:
    bad = found.bad
    if bad is None:
        return OK
    assert bad.reason
    assert bad.allowed
    assert max(len(bad.reason), len(bad.allowed)) < 500, "they are for people"
    assert "\n" not in bad.reason + bad.allowed
    return bad.reason


@pytest.mark.parametrize("case", CASES, ids=[f"{case.format}: {case.name}" for case in CASES])
def test_a_broken_record_ends_in_the_dead_letters_and_the_rest_goes_on__D2(case: Case) -> None:
    found = [reason_of(record) for record in READERS[case.format](case.data, Columns(), NOW_NS)]
    assert len(found) == len(case.outcomes)
    for reason, expected in zip(found, case.outcomes, strict=True):
        assert reason.startswith(expected)
        assert (reason == OK) == (expected == OK)


def test_no_case_stands_twice_in_the_corpus() -> None:
    assert len({(case.format, case.name) for case in CASES}) == len(CASES)
    assert len({case.data for case in CASES}) == len(CASES)
