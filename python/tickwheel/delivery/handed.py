"""The rows of a hand-off as Arrow batches (rule S3): messages that were read elsewhere, and go to a deliverer.

`src/delivery/handed.rs` says what each row holds, writes them, and reads them back.
"""

from typing import Any, Final

import pyarrow as pa

from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.message import MAX_PAYLOAD, Columns


def batch_of(records: Records) -> Any:
    """Records as an Arrow batch of `HANDED`, a row for each."""
    [batch] = pa.ipc.open_stream(records.handed())
    return batch


HANDED: Final = batch_of(NdjsonLines("", Columns().names, MAX_PAYLOAD).read(b"")).schema
"""The schema of a hand-off."""
