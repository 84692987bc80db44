"""The figures, each a function from `LEDGER_MESSAGES` to a DataFrame with the columns listed in `schemas`.

Each is lazy and needs nothing but its argument, so it can be used by itself. The rows are in order. The memory is that
of Spark's sorting and grouping, which spill to disk: no percentile keeps the values of a group in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, the usual name

from tickwheel.analysis.figures import KEYS, MINUTE_MS, OUTCOMES, UNITS_MS
from tickwheel.delivery.model.summary import PERCENTILES
from tickwheel.delivery.report.lateness import BOUNDS_US


def outcomes(messages: DataFrame) -> DataFrame:
    """The number of messages by ledger and outcome."""
    found = messages.groupBy("ledger", "outcome").agg(
        counted().alias("messages"),
        counted(F.col("redelivered")).alias("redelivered"),
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
    )
    return in_order(found, "ledger", "outcome")


def lateness(messages: DataFrame) -> DataFrame:
    """The lateness of all delivered messages: one row, also if none was delivered."""
    return percentiles(_late(messages))


def lateness_over_time(messages: DataFrame, step_ms: int) -> DataFrame:
    """The lateness by time of delivery."""
    late = _late(messages).withColumn("start_ms", start_of("at_ms", step_ms))
    return in_order(percentiles(late, "start_ms"), "start_ms")


def lateness_by_key(messages: DataFrame, most: int = KEYS) -> DataFrame:
    """The lateness of the `most` busiest and the `most` latest keys, which may be the same."""
    late = _late(messages).where(F.col("key").isNotNull())
    keys = late.groupBy("key").agg(counted().alias("messages"), F.max("lateness_us").alias("max_us"))
    busiest, latest = _first(keys, "messages", most, "busiest"), _first(keys, "max_us", most, "latest")
    shown = busiest.join(latest, "key", "outer").select("key", "busiest", "latest")
    found = percentiles(late.join(F.broadcast(shown.select("key")), "key"), "key").join(F.broadcast(shown), "key")
    return in_order(found, F.col("messages").desc(), "key")


def lateness_by_size(messages: DataFrame) -> DataFrame:
    """A histogram of lateness. Bars end at 1, 2 or 5 times a power of ten, the end included; the last has the rest."""
    late = F.col("lateness_us")
    place = sum(((late > bound).cast("int") for bound in BOUNDS_US[:-1]), start=F.lit(0))
    ends = F.array(*(F.lit(bound / 1000) for bound in BOUNDS_US))
    found = _late(messages).groupBy(place.alias("place")).agg(counted().alias("messages"))
    return in_order(found.select(ends[F.col("place")].alias("up_to_ms"), "messages"), "up_to_ms")


def hot_keys(messages: DataFrame, most: int = KEYS) -> DataFrame:
    """The keys with most messages, the outcomes of these messages, and their share of all."""
    keys = messages.groupBy("key").agg(
        counted().alias("messages"),
        *(counted(F.col("outcome") == one).alias(one) for one in OUTCOMES),
        counted(F.col("attempts") > 1).alias("retried"),
    )
    every = keys.agg(F.sum("messages").alias("every"))
    order = F.col("messages").desc(), F.col("key")
    found = keys.where(F.col("key").isNotNull()).orderBy(*order).limit(most).crossJoin(F.broadcast(every))
    share = (F.col("messages") / F.col("every")).alias("share")
    return in_order(found.select("key", "messages", share, "retried", *OUTCOMES), *order)


def attempts(messages: DataFrame) -> DataFrame:
    """The number of messages by number of attempts and outcome."""
    found = messages.where(F.col("attempts").isNotNull()).groupBy("attempts", "outcome")
    counts = found.agg(counted().alias("messages"), counted(F.col("redelivered")).alias("redelivered"))
    return in_order(counts, "attempts", "outcome")


def repeats(messages: DataFrame) -> DataFrame:
    """Messages that may have arrived twice, as far as ledgers show; one row."""
    is_delivered, is_waiting = F.col("outcome") == "delivered", F.col("outcome") == "waiting"
    names = messages.groupBy("key", "id").agg(
        F.countDistinct("ledger").alias("ledgers"),
        F.countDistinct(F.when(is_delivered, F.col("ledger"))).alias("delivered"),
        counted(is_delivered & F.col("redelivered")).alias("redelivered"),
        counted(is_waiting & F.col("redelivered")).alias("may_have_arrived"),
    )
    return names.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("redelivered", "may_have_arrived")),
        counted(F.col("ledgers") > 1).alias("in_several_ledgers"),
        counted(F.col("delivered") > 1).alias("delivered_by_several"),
    )


def throughput(messages: DataFrame, step_ms: int = MINUTE_MS) -> DataFrame:
    """The messages that ended, by the time of their outcome."""
    ended = messages.where(F.col("at_ms").isNotNull()).groupBy(start_of("at_ms", step_ms).alias("start_ms"))
    counts = ended.agg(
        *(counted(F.col("outcome") == one).alias(one) for one in OUTCOMES[:-1]),
        F.sum("attempts").alias("attempts"),
    )
    return in_order(counts, "start_ms")


def due(messages: DataFrame, step_ms: int) -> DataFrame:
    """The waiting messages, by due time."""
    waiting = messages.where(F.col("outcome") == "waiting").groupBy(start_of("due_ms", step_ms).alias("start_ms"))
    return in_order(waiting.agg(counted().alias("messages")), "start_ms")


def due_forecast(messages: DataFrame) -> DataFrame:
    """The waiting messages by minute, hour and day of their due time: each is counted in one row of each unit."""
    minutes = due(messages, MINUTE_MS)
    steps = F.explode(F.create_map(*(F.lit(one) for pair in UNITS_MS.items() for one in pair))).alias("unit", "step_ms")
    start = (F.col("start_ms") - F.pmod("start_ms", "step_ms")).alias("start_ms")
    found = minutes.select("start_ms", "messages", steps).select("unit", "step_ms", start, "messages")
    counts = found.groupBy("unit", "step_ms", "start_ms").agg(F.sum("messages").alias("messages"))
    return in_order(counts, "step_ms", "start_ms").select("unit", "start_ms", "messages")


FIGURES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "outcomes": outcomes,
    "lateness": lateness,
    "lateness_by_minute": partial(lateness_over_time, step_ms=MINUTE_MS),
    "lateness_by_key": lateness_by_key,
    "lateness_by_size": lateness_by_size,
    "hot_keys": hot_keys,
    "attempts": attempts,
    "repeats": repeats,
    "throughput": throughput,
    "due_forecast": due_forecast,
}
"""Each figure is written to a file of its name."""


def percentiles(late: DataFrame, *by: str) -> DataFrame:
    """`messages` and the percentiles of `lateness_us` by nearest rank, for each group; without `by` always one row.

    Equal values are counted first. Sorting then numbers them in their group, and the ranks are looked up, in the same
    arithmetic as `tickwheel.delivery.model.summary.rank`.
    """
    group = Window.partitionBy(*by)
    so_far = group.orderBy("lateness_us").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    alike = late.groupBy(*by, "lateness_us").agg(counted().alias("alike"))
    ranked = alike.withColumn("through", F.sum("alike").over(so_far)).withColumn("count", F.sum("alike").over(group))
    found = [
        (F.min(F.when(F.col("through") >= F.ceil(F.lit(q) * F.col("count")), F.col("lateness_us"))) / 1000).alias(
            f"{name}_ms"
        )
        for name, q in PERCENTILES.items()
    ]
    return ranked.groupBy(*by).agg(F.coalesce(F.sum("alike"), F.lit(0)).alias("messages"), *found)


def _late(messages: DataFrame) -> DataFrame:
    return messages.where((F.col("outcome") == "delivered") & F.col("lateness_us").isNotNull())


def start_of(column: str, step_ms: int) -> Column:
    """The start of the time step that the column's time is in."""
    return F.col(column) - F.pmod(F.col(column), F.lit(step_ms))


def in_order(figure: DataFrame, *by: Column | str) -> DataFrame:
    """Sorted, in one partition: a figure is small, and a sort over several would make Spark compute it twice."""
    return figure.repartition(1).sortWithinPartitions(*by)


def counted(condition: Column | None = None) -> Column:
    """The number of rows, or of those for which the condition is true."""
    return F.count(F.lit(1)) if condition is None else F.count_if(condition)


def _first(keys: DataFrame, column: str, most: int, place: str) -> DataFrame:
    """The keys with the largest values, and their ranks from 1."""
    order: Sequence[Column] = (F.col(column).desc(), F.col("key"))
    return keys.orderBy(*order).limit(most).select("key", F.row_number().over(Window.orderBy(*order)).alias(place))
