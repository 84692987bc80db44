"""The state of a shard in format 6, which this version's hold writes.

Once a hold has a later format, this module gets its own structs, as `format_5.py` has.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.spark.packing import unpack
from tickwheel.spark.shard_index import Index, Part, Stage
from tickwheel.spark.upgrade.kept import Controls, Messages, Shard


def shard_of(index: bytes) -> Shard:
    """What an index says. Errors: `DeliveryFailed` if it is damaged."""
    try:
        found = Index.decode(index)
    except msgspec.MsgspecError as error:
        raise DeliveryFailed(f"an index of the checkpoint is damaged ({error}): restore it from a copy") from error
    chunks = defaultdict[int, list[Messages | Controls]](list)
    for part, is_given in _parts(found):
        chunks[part.chunk].append(Messages(part.start, part.stop, None, is_given or part.is_again))
    about_rules = {id(it) for it in found.recurring}
    for position, it in enumerate(found.logs()):
        is_given, is_taken = it.is_again or it.stage > Stage.WAITS, it.stage == Stage.TAKEN
        begins_anew = not is_taken and (it.is_again or it.settled_ms is not None)
        rows = it.rules + it.others
        chunks[it.chunk].append(Controls(position, rows, is_given, is_taken, id(it) in about_rules, begins_anew))
    messages = sum(part.rows for part in found.parts())
    return Shard(found.address, messages, sum(it.rules + it.others for it in found.logs()), dict(chunks))


def rows_of(chunk: bytes) -> Any:
    """The rows of a chunk, as an Arrow batch. Errors: `DeliveryFailed` if it is damaged."""
    try:
        rows = unpack(chunk)
        rows.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DeliveryFailed(f"a chunk of the checkpoint is damaged ({error}): restore it from a copy") from error
    return rows


def _parts(index: Index) -> Iterator[tuple[Part, bool]]:
    for run in index.runs:
        yield from ((part, run.is_unsure) for part in run.parts)
    yield from ((part, True) for part in index.at_taker())
