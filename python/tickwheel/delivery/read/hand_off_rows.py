"""The rows of a hand-off as Arrow batches (rule S3): messages that were read elsewhere, and go to a deliverer.

`crates/delivery/src/formats/hand_off.rs` says what each row holds, writes them, and reads them back.
"""

from typing import Any, Final

import pyarrow as pa

from tickwheel import _native
from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns

PARTITIONS: Final = _native.PARTITIONS
"""How many partitions there are: each key is in one of them, whatever happens, and each has one deliverer (rule S5)."""


def batch_of(records: Records) -> Any:
    """Records as an Arrow batch, a row for each: the columns of `HANDED`, and `partition`, from 0 to 63."""
    [batch] = pa.ipc.open_stream(records.to_hand_off())
    return batch


HANDED: Final = pa.schema([*batch_of(NdjsonLines("", Columns(), MAX_PAYLOAD).read(b"")).schema][:-1])
"""The schema of a hand-off: what is held, and what a deliverer reads."""
