"""How to deliver: the options of `tickwheel deliver` with the same names. The engine has the table of their ranges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tickwheel._native import SETTINGS, rate_per_s
from tickwheel.delivery.base.errors import WrongUsage, quoted
from tickwheel.delivery.model.entries import SetDestination
from tickwheel.delivery.model.retry import Retry


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be in memory; of one key too, which has at least one message whatever its size."""

    messages: int = 400_000
    size: int = 64 << 20
    lane_messages: int = 128
    lane_size: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Errors: `WrongUsage`. `unanswered_for_s`: how long a message about which nothing is known is due, and its key
    without success, until it is a dead letter. `seed`: of the jitter of back-off. `rate`: how fast messages are sent.
    `concurrency`: how many sends there are at a time. `spare`: how many more that are slow or in doubt. `None`: as the
    destination takes them. `tenant_concurrency`, `tenant_rate`: of a tenant (D24). `final_statuses`: of a webhook's
    answer, which make a dead letter at once (D6). `allow_addresses`: networks inside that named destinations may have
    (D23). `proxy`: of webhooks, an address or `env`. `destinations`: those that are set at the start. `replicate_to`:
    the address of a PostgreSQL (D21).
    """

    order: Literal["key", "global"] = "key"
    horizon_s: float = 10.0
    sink_timeout_s: float = 30.0
    keep_ids_days: float = 7.0
    retry: Retry = field(default_factory=Retry)
    bounds: Bounds = field(default_factory=Bounds)
    unanswered_for_s: float = 86_400.0
    seed: int = 0
    rate: str | None = None
    concurrency: int | None = None
    spare: int | None = None
    tenant_concurrency: int | None = None
    tenant_rate: str | None = None
    final_statuses: tuple[int, ...] = ()
    allow_addresses: tuple[str, ...] = ()
    proxy: str | None = field(default=None, repr=False)
    destinations: Sequence[SetDestination] = field(default=(), repr=False)
    replicate_to: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, *, final_statuses: Iterable[int] | None, allow_addresses: Iterable[str], **how: Any) -> "Settings":
        """From the parameters of a queue, or the options of a command. Errors: `WrongUsage`."""
        retry = {name: how.pop(name) for name in ("max_attempts", "backoff_s", "waits_s", "waits_end")}
        return cls(
            retry=Retry.of_seconds(**retry),
            final_statuses=tuple(final_statuses or ()),
            allow_addresses=tuple(allow_addresses),
            **how,
        )

    def __post_init__(self) -> None:
        if self.order not in ("key", "global"):
            raise WrongUsage(f"order is {self.order!r}: it may be 'key' or 'global'")
        for name, rate in (("rate", self.rate), ("tenant-rate", self.tenant_rate)):
            if rate is not None:
                try:
                    rate_per_s(f"{rate}")
                except WrongUsage as error:
                    raise WrongUsage(f"{name}: {error}") from None
        given: dict[str, object] = {
            "horizon": self.horizon_s,
            "max-attempts": self.retry.max_attempts,
            "backoff's first wait": self.retry.first_ms / 1000,
            "backoff's longest wait": self.retry.longest_ms / 1000,
            "unanswered-for": self.unanswered_for_s,
            "sink-timeout": self.sink_timeout_s,
            "keep-ids": self.keep_ids_days,
            "concurrency": self.concurrency,
            "spare": self.spare,
            "tenant-concurrency": self.tenant_concurrency,
        }
        for status in self.final_statuses:
            if not _is_whole(status) or not 400 <= status <= 499:
                raise WrongUsage(f"final-status is {_shown(status)}: it may be a whole number, 400 to 499")
        waits = (("a wait", wait_ms / 1000) for wait_ms in self.retry.waits_ms)
        for name, value in (*given.items(), *waits):
            _, is_whole, least, most, default = SETTINGS["backoff's first wait" if name == "a wait" else name]
            if value is None and default is None:
                continue
            if name == "backoff's longest wait":
                least = self.retry.first_ms / 1000
            kinds = int if is_whole else int | float
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
                kind = "a whole number, " if is_whole and not _is_whole(value) else ""
                raise WrongUsage(f"{name} is {_shown(value)}: it may be {kind}{least:g} to {most:,.0f}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    try:
        return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else quoted(value)
    except OverflowError:  # no float holds it
        return quoted(value)
