"""The formats of a shard's state that this version exports. A value of the state begins with a byte for its format."""

from types import ModuleType
from typing import Any, Final

from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.spark.upgrade import format_5, format_6
from tickwheel.spark.upgrade.kept import Shard

FORMATS: Final[dict[int, ModuleType]] = {5: format_5, 6: format_6}


def shard_of(index: bytes) -> Shard:
    """What an index says. Errors: `DeliveryFailed` if it is damaged, or of a format that is not known."""
    found: Shard = _module(index).shard_of(index)
    return found


def rows_of(chunk: bytes) -> Any:
    """The rows of a chunk, as an Arrow batch. Errors: as `shard_of`."""
    return _module(chunk).rows_of(chunk)


def _module(value: bytes) -> ModuleType:
    found = FORMATS.get(value[0]) if value else None
    if found is None:
        raise DeliveryFailed(
            f"the checkpoint has a value in the format {value[0] if value else 'of nothing'}, and this version exports "
            f"{named()}: export it with the version that wrote it"
        )
    return found


def named() -> str:
    """The formats for an error."""
    return "the formats " + " and ".join(map(str, FORMATS))
