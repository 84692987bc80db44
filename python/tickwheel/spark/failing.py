"""Why a query failed, in one line: what Spark says of an error is a page, and the reason stands somewhere in it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tickwheel.delivery.errors import DeliveryFailed

_LENGTH: Final = 500
_QUERY: Final = "=== Streaming Query ==="  # from here on Spark tells its plan
_OURS: Final = re.compile(r"^tickwheel\.(?:delivery\.errors|recording)\.\w+: (.+)$", re.MULTILINE)
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$", re.MULTILINE)
_CODE: Final = r"\[[A-Z0-9]+_[A-Z0-9_.]+\] "
_SPARKS: Final = re.compile(
    rf"^(.*){_CODE}((?:.|\n(?!\s|Traceback|.*{_CODE}))+?)(?= SQLSTATE:|\n\s|\nTraceback|\n.*{_CODE}|\Z)", re.MULTILINE
)
_BEFORE: Final = re.compile(
    r"^.*terminated with exception: |^(?:: |Caused by: )?(?:org\.apache\.spark|py4j)\.[\w.$]+: "
)
_JAVAS: Final = re.compile(r"^(?:: |Caused by: )?([\w.$]+(?:Exception|Error)\b.*)$", re.MULTILINE)


def failure(error: object, checkpoint: Path, *, is_resuming: bool) -> DeliveryFailed:
    """What to raise for what Spark raised; `is_resuming`: before it did anything beyond what the checkpoint has."""
    text = str(error).partition(_QUERY)[0]
    if not is_resuming or _OURS.search(text):
        return DeliveryFailed(reason(error))
    return DeliveryFailed(
        f"Spark can't go on from the checkpoint {checkpoint}: {_innermost(text)}; if it is damaged, or another "
        "version's, bring it back from a copy, go on with that version, or name another checkpoint: what this one "
        "holds is lost, unless its files are given again"
    )


def reason(error: object) -> str:
    """What a task said, in our own words if it has any; otherwise that Spark failed, and why."""
    text = str(error).partition(_QUERY)[0]
    ours = _OURS.findall(text)
    return ours[-1] if ours else f"Spark failed: {_innermost(text)}"


def _innermost(text: str) -> str:
    """The innermost that says something, on one line."""
    reason = next(_reasons(text), text).strip()
    while (shorter := _BEFORE.sub("", reason)) != reason:
        reason = shorter
    return " ".join(reason.split()).rstrip(".")[:_LENGTH]


def _reasons(text: str) -> Iterator[str]:
    """Of a worker's Python, of Spark, of Java; the innermost of each comes last in the text."""
    yield from (last for last in reversed(_TRACEBACK.findall(text)) if not last.startswith(("py4j.", "pyspark.")))
    yield from ("".join(found) for found in reversed(_SPARKS.findall(text)))
    yield from reversed(_JAVAS.findall(text))
