"""What an analysis writes beside its page."""

from typing import Final

COMMAND: Final = "tickwheel analyze"

WRITTEN: Final = {
    "ledgers.parquet": "a ledger",
    "outcomes.parquet": "a ledger and outcome",
    "lateness.parquet": "all messages",
    "lateness_by_minute.parquet": "a minute of delivery",
    "lateness_by_key.parquet": "one of the 100 busiest or 100 latest keys",
    "lateness_by_size.parquet": "a bar of the histogram",
    "hot_keys.parquet": "one of the 100 keys with most messages",
    "attempts.parquet": "a number of attempts and an outcome",
    "repeats.parquet": "all messages",
    "throughput.parquet": "a minute",
    "due_forecast.parquet": "a minute, an hour, a day",
}
"""The files that an analysis writes beside its page, and what one row of each stands for."""

WRITTEN_OF_EVENTS: Final = {
    "timer_by_minute.parquet": "a minute of recorded timers",
    "timer_levels.parquet": "a level of recorded timers",
}
"""The files that it also writes if recordings were given."""
