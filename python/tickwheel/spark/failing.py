"""Why a query failed, in one line: Spark's error text is a page long, and the reason is somewhere in it."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from typing import Final

from tickwheel.delivery.base.errors import DeliveryFailed

_MOST_CHARACTERS: Final = 500
_PLAN_HEADER: Final = "=== Streaming Query ==="  # Spark's query plan follows
_OWN_ERROR: Final = re.compile(r"^tickwheel\.(?:delivery\.base\.errors|recording)\.\w+: (.+)$", re.MULTILINE)
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", re.MULTILINE)
_CODE: Final = r"\[[A-Z0-9]+_[A-Z0-9_.]+\] "
_SPARK_ERROR: Final = re.compile(
    rf"^(.*){_CODE}((?:.|\n(?!\s|Traceback|.*{_CODE}))+?)(?= SQLSTATE:|\n\s|\nTraceback|\n.*{_CODE}|\Z)", re.MULTILINE
)
_PREFIX: Final = re.compile(
    r"^.*terminated with exception: |^(?:: |Caused by: )?(?:org\.apache\.spark|py4j)\.[\w.$]+: "
)
_OF_KAFKA: Final = re.compile(r"org\.apache\.kafka\.|\[KAFKA_|\.sql\.kafka010\.")
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_LITTLE: Final = 1 << 20  # bytes
_JAVA_ERROR: Final = re.compile(r"^(?:: |Caused by: )?([\w.$]+(?:Exception|Error)\b.*)$", re.MULTILINE)


def failure(error: object, checkpoint: object, *, is_resuming: bool) -> DeliveryFailed:
    """The error to raise for one of Spark's. `is_resuming`: the query has done nothing beyond the checkpoint yet."""
    text = str(error).partition(_PLAN_HEADER)[0]
    if _OWN_ERROR.search(text):
        return DeliveryFailed(reason(error))
    if _FULL.search(text) or _is_full(checkpoint):
        return DeliveryFailed(
            f"a disk is full, that of the checkpoint {checkpoint} or of SPARK_LOCAL_DIRS: {innermost(text)}; nothing "
            "is lost: make room, and start again"
        )
    if "KAFKA_DATA_LOSS" in text:
        return DeliveryFailed(f"the topic has lost records: {innermost(text)}; the next start tells their offsets")
    if _OF_KAFKA.search(text):
        return DeliveryFailed(f"the topic can't be read: {innermost(text)}; nothing is lost")
    if not is_resuming:
        return DeliveryFailed(reason(error))
    return DeliveryFailed(
        f"Spark can't go on from the checkpoint {checkpoint}: {innermost(text)}; if it is damaged, restore it from a "
        "copy; if another version of Spark made it, go on with that version; or name another checkpoint: what this one "
        "holds is lost, unless its files are given again"
    )


def _is_full(folder: object) -> bool:
    """Whether the folder is on a full disk of this machine. Spark's own error may not say so."""
    with contextlib.suppress(OSError, ValueError):
        return shutil.disk_usage(str(folder)).free < _LITTLE
    return False


def reason(error: object) -> str:
    """The message of tickwheel's own error if there is one; otherwise that Spark failed, and why."""
    text = str(error).partition(_PLAN_HEADER)[0]
    own = _OWN_ERROR.findall(text)
    return own[-1] if own else f"Spark failed: {innermost(text)}"


def innermost(text: str) -> str:
    """The innermost reason in an error of Spark's, on one line."""
    reason = next(_reasons(text), text).strip()
    while (shorter := _PREFIX.sub("", reason)) != reason:
        reason = shorter
    return " ".join(reason.split()).rstrip(".")[:_MOST_CHARACTERS]


def _reasons(text: str) -> Iterator[str]:
    """Errors of a worker's Python, then of Spark, then of Java. The innermost of each comes last in the text."""
    yield from (last for last in reversed(_TRACEBACK.findall(text)) if not last.startswith(("py4j.", "pyspark.")))
    yield from ("".join(found) for found in reversed(_SPARK_ERROR.findall(text)))
    yield from reversed(_JAVA_ERROR.findall(text))
