"""What a driver says of its query: how it goes, and when micro-batches come near the lead (rules S3, D15)."""

import time
from collections.abc import Mapping
from typing import Any, Final

from tickwheel._printable import logger_of
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.metrics import QueryMeasures

_SAY_EVERY_S: Final = 10.0
_WARN_EVERY_S: Final = 60.0

_log = logger_of(__name__)


class Watched:
    """Takes the reports of micro-batches: counts them, and writes to the log how it goes."""

    def __init__(self, hand_off: HandOff, measures: QueryMeasures, began_s: float) -> None:
        self.measures = measures
        self._hand_off = hand_off
        self._began_s = began_s
        self._said_s = self._warned_s = float("-inf")

    def __call__(self, progress: Mapping[str, Any] | None) -> None:
        """Take the last report, which may be an old one."""
        if progress is None or not self.measures.note(progress):
            return
        now_s = time.monotonic()
        if not self.measures.started_within_s:
            self.measures.started_within_s = now_s - self._began_s
            self._warn(now_s, "the first hand-off ended %.0f s after the start", self.measures.started_within_s)
        self._warn(now_s, "a micro-batch took %.0f s", self.measures.batch_s)
        if now_s >= self._said_s + _SAY_EVERY_S:
            self._said_s = now_s
            report = self._hand_off.report
            _log.info(
                "%s held, %s handed off and not settled; micro-batch %d took %.1f s",
                f"{report.waiting:,}", f"{report.given:,}", progress["batchId"], self.measures.batch_s,
            )  # fmt: skip

    def _warn(self, now_s: float, what: str, took_s: float) -> None:
        lead_s = self.measures.lead_s
        if took_s > lead_s / 2 and now_s >= self._warned_s + _WARN_EVERY_S:
            self._warned_s = now_s
            _log.warning(
                f"{what}, and the lead is %g s: messages are late where the two come together; give a longer --lead, "
                "more cores, or less to read at a time",
                took_s, lead_s,
            )  # fmt: skip
