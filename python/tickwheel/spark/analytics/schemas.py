"""Every table of the analysis, in one place: what is read from ledgers, and the figures made from it (rule S6).

Times are epoch milliseconds (UTC) and end in `_ms`. `start_ms` is the start of a time step; steps are counted from
1970. Lateness is in milliseconds to the microsecond. Percentiles are exact, by nearest rank. As in every summary, they
are of the messages delivered with a known lateness; `messages` beside them is the number of these.

| figure | one row for | columns |
|---|---|---|
| `ledgers` | a ledger | `ledger, path, store_id, as_of_ms, dead_letters, conflicts` |
| `outcomes` | a ledger and outcome | `ledger, outcome, messages, redelivered, first_ms, last_ms` |
| `lateness` | all | `messages, p50_ms, p99_ms, p999_ms, max_ms` |
| `lateness_by_minute` | a minute of delivery | `start_ms`, and as `lateness` |
| `lateness_by_key` | one of the busiest or latest keys | `key`, as `lateness`, `busiest, latest` |
| `lateness_by_size` | a bar of a histogram | `up_to_ms, messages` |
| `hot_keys` | one of the keys with most messages | `key, messages, share, retried`, and one for each outcome |
| `attempts` | a number of attempts and an outcome | `attempts, outcome, messages, redelivered` |
| `repeats` | all | `redelivered, may_have_arrived, in_several_ledgers, delivered_by_several` |
| `throughput` | a minute | `start_ms, delivered, cancelled, undeliverable, attempts` |
| `due_forecast` | a minute, an hour, a day | `unit, start_ms, messages` |
| `timer_by_minute` | a minute of recorded timers | `start_ms, added, moved, cancelled, expired, wake_ups, cascades` |
| `timer_levels` | a level of recorded timers | `level, put, flushed, cascaded, expired`, and percentiles |

- `ledger` is the ledger's place on the command line, from 0. `conflicts`: dead letters, among the last 10,000 of a
  ledger, whose key and id were known with other content.
- `outcome` is `delivered`, `cancelled`, `undeliverable` (a dead letter after its last attempt) or `waiting`.
- `redelivered`: marked so, because the message may have arrived before: a send had no answer, or a run crashed.
  `may_have_arrived`: marked so, and waiting. `in_several_ledgers`: more than one deliverer accepted the same key and
  id. Duplicates that a deliverer dropped are in no ledger: the summary of a run counts them.
- `busiest` and `latest` are ranks, from 1, by number of messages and by `max_ms`. Of equal keys the lesser comes first.
  `null`: not among them.
- `share` is of all messages, also those without a key. `retried` messages took more than one attempt.
- `level` 1 is the finest, and 0 is the front, where tasks wait for their instant. `put`: tasks added or moved to this
  level. `expired`: those of them that ran; the percentiles are of their lateness. `flushed`: buckets of the level that
  were emptied; `cascaded`: tasks that these sent to a lower level or to the front. `cascades` does not count level 1,
  because every task on it goes to the front.
- `throughput` counts the messages that ended in that minute, and `attempts` their attempts. A minute without events has
  no row, here and elsewhere.
"""

from typing import Final

from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

LEDGER_MESSAGES: Final = StructType(
    [
        StructField("ledger", IntegerType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("key", StringType()),
        StructField("id", StringType(), nullable=False),
        StructField("due_ms", LongType(), nullable=False),
        StructField("outcome", StringType(), nullable=False),
        StructField("at_ms", LongType()),
        StructField("lateness_us", LongType()),
        StructField("attempts", IntegerType()),
        StructField("redelivered", BooleanType(), nullable=False),
    ]
)
"""Every message in the ledgers. A waiting message has no `at_ms`, `lateness_us` and `attempts`."""

EVENTS: Final = StructType(
    [
        StructField("recording", IntegerType(), nullable=False),
        StructField("at_ms", LongType(), nullable=False),
        StructField("at_us", LongType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("number", LongType()),
        StructField("due_us", LongType()),
        StructField("level", IntegerType()),
        StructField("tasks", LongType()),
    ]
)
"""Every event of the recordings (see `tickwheel.recording`). `recording` is the file's place on the command line, from
0; `at_ms` is the wall time.
"""
