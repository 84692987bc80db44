"""The table of settings, and what is written by hand beside it: the signatures of the queues (rule D11)."""

import inspect

import pytest

from tickwheel._native import SETTINGS
from tickwheel.delivery import AsyncDeliveryQueue, DeliveryQueue
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

PARAMETERS = {
    "horizon": "horizon_s",
    "max-attempts": "max_attempts",
    "unanswered-for": "unanswered_for_s",
    "sink-timeout": "sink_timeout_s",
    "keep-ids": "keep_ids_days",
    "concurrency": "concurrency",
    "spare": "spare",
    "tenant-concurrency": "tenant_concurrency",
}


@pytest.mark.parametrize("queue", [DeliveryQueue, AsyncDeliveryQueue])
def test_the_signature_of_a_queue_has_each_setting_with_its_default(queue: type) -> None:
    parameters = inspect.signature(queue).parameters
    waits = tuple(SETTINGS[f"backoff's {which} wait"][4] for which in ("first", "longest"))
    assert parameters["backoff_s"].default == waits
    assert {name: parameters[parameter].default for name, parameter in PARAMETERS.items()} == {
        name: default for name, (*_, default) in SETTINGS.items() if not name.startswith("backoff")
    }


def test_the_class_of_settings_has_the_defaults_of_the_table() -> None:
    made = Settings()
    found = {
        "horizon": made.horizon_s,
        "max-attempts": made.retry.max_attempts,
        "backoff's first wait": made.retry.first_ms / 1000,
        "backoff's longest wait": made.retry.longest_ms / 1000,
        "unanswered-for": made.unanswered_for_s,
        "sink-timeout": made.sink_timeout_s,
        "keep-ids": made.keep_ids_days,
        "concurrency": made.concurrency,
        "spare": made.spare,
        "tenant-concurrency": made.tenant_concurrency,
    }
    assert found == {name: default for name, (*_, default) in SETTINGS.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ends_of_a_range_are_taken_and_what_is_past_them_is_not(name: str) -> None:
    unit, is_whole, least, most, _ = SETTINGS[name]
    assert unit in ("", "s", "days")
    small = 1 if is_whole else 0.0001

    def made(value: float) -> Settings:
        given = int(value) if is_whole else value
        if name == "max-attempts":
            return Settings(retry=Retry(max_attempts=int(value)))
        if name == "backoff's first wait":
            return Settings(retry=Retry(first_ms=value * 1000, longest_ms=86_400_000))
        if name == "backoff's longest wait":
            return Settings(retry=Retry(first_ms=1, longest_ms=value * 1000))
        return Settings(**{PARAMETERS[name]: given})

    made(least)
    made(most)
    for wrong in (least - small, most + 1):
        with pytest.raises(WrongUsage, match="it may be"):
            made(wrong)
