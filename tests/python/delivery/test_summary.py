import statistics

from hypothesis import given
from hypothesis import strategies as st

from tickwheel.delivery import Summary
from tickwheel.delivery.model.summary import percentiles


def test_percentiles_are_nearest_rank__D11() -> None:
    assert percentiles([float(n) for n in range(1, 1001)]) == {"p50": 500.0, "p99": 990.0, "p999": 999.0, "max": 1000.0}
    assert percentiles([4.0, 1.0, 3.0, 2.0]) == {"p50": 2.0, "p99": 4.0, "p999": 4.0, "max": 4.0}


def test_with_nothing_delivered_there_is_no_lateness__D11() -> None:
    assert percentiles([]) == {"p50": None, "p99": None, "p999": None, "max": None}


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_percentile_is_a_value_that_was_there__D11(values: list[float]) -> None:
    found = percentiles(values)
    assert found["max"] == round(max(values), 3)
    assert found["p50"] == round(statistics.median_low(values), 3)


def test_every_message_is_in_one_of_four_counts__D2() -> None:
    summary = Summary(resumed=2, accepted=10, delivered=6, cancelled=1, undeliverable=1)
    assert summary.not_delivered == 4
    written = summary.as_dict()
    assert list(written)[:5] == ["accepted", "delivered", "duplicates", "cancelled", "dead_letters"]
    assert written["lateness_ms"] == {"p50": None, "p99": None, "p999": None, "max": None}
