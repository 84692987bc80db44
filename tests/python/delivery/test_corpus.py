"""The corpus of broken records: each becomes a dead letter with its reason; the good records beside it do not."""

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pytest

from delivery.corpus.cases import CASES
from delivery.corpus.making import OK, Case
from tickwheel.delivery.csv_rows import read_csv
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Columns, check
from tickwheel.delivery.ndjson import read_ndjson
from tickwheel.delivery.parquet import read_parquet
from tickwheel.delivery.record import Record

NOW_NS = 10**18

READERS: dict[str, Callable[[str, BinaryIO, Columns], Iterator[Record]]] = {
    "ndjson": read_ndjson,
    "csv": read_csv,
    "parquet": read_parquet,
}


def reason_of(record: Record) -> str:
    try:
        check(record.fields(), Columns(), NOW_NS)
    except BadRecord as error:
        bad = error
    else:
        return OK
    assert bad.reason
    assert bad.allowed
    assert max(len(bad.reason), len(bad.allowed)) < 500, "they are for people"
    assert "\n" not in bad.reason + bad.allowed
    return bad.reason


@pytest.mark.parametrize("case", CASES, ids=[f"{case.format}: {case.name}" for case in CASES])
def test_a_broken_record_ends_in_the_dead_letters_and_the_rest_goes_on__D2(case: Case) -> None:
    found = [reason_of(record) for record in READERS[case.format](case.name, io.BytesIO(case.data), Columns())]
    assert len(found) == len(case.outcomes)
    for reason, expected in zip(found, case.outcomes, strict=True):
        assert reason.startswith(expected)
        assert (reason == OK) == (expected == OK)


def test_no_case_stands_twice_in_the_corpus() -> None:
    assert len({(case.format, case.name) for case in CASES}) == len(CASES)
    assert len({case.data for case in CASES}) == len(CASES)
