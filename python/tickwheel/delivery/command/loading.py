"""`tickwheel load`: reads inputs as `tickwheel deliver` does, puts their records into a store or a server, and ends.

A server gets each record as a line with the usual names. It does not know how far an input was read: what is given
again is a duplicate there.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tickwheel._native import Records
from tickwheel._stopping import stopped_by, stopped_by_signals
from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed, WrongUsage
from tickwheel.delivery.command.job import Job, Result, run
from tickwheel.delivery.command.reading import ITS_START, Reading
from tickwheel.delivery.model.entries import OTHER_CONTENT, Answer, Event, Letter, Reschedule
from tickwheel.delivery.model.message import MAX_PAYLOAD_LIMIT, Cancel, Columns, Message
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.observe.dead_letters import PutLetters
from tickwheel.delivery.observe.progress import Reporter
from tickwheel.delivery.outbox.records import cancel_record, event_record, reschedule_record
from tickwheel.delivery.queue.control import KEEP_IDS_DAYS, refuse_used
from tickwheel.delivery.queue.server_view import ServerView
from tickwheel.delivery.read.sources import OpenSource, Source
from tickwheel.delivery.sinks import Destination

_COUNTS = {
    "accepted": "accepted",
    "replaced": "accepted",
    "duplicate": "duplicates",
    "rescheduled": "rescheduled",
    "let_go": "events",
}


def load_store(
    store: Path, sources: Sequence[Source], columns: Columns, put_letters: PutLetters, reporter: Reporter
) -> Result:
    """Put them into a store that no process works with. Errors: `WrongUsage`, `DeliveryFailed`."""
    refuse_used(store)
    job = Job(
        lambda running, _store: Reading(sources, columns, running, reporter.say, is_replay=False),
        Destination.http("http://127.0.0.1:9"),  # messages may name a destination or none, and nothing is sent
        put_letters,
        Settings(keep_ids_days=KEEP_IDS_DAYS),
        store,
        speed=None,
        from_ms=None,
        delivers=False,
    )
    return run(job, reporter)


def load_server(
    server: ServerView,
    name: str,
    sources: Sequence[Source],
    columns: Columns,
    put_letters: PutLetters,
    reporter: Reporter,
) -> Result:
    """Put them into the server of this name."""
    summary, failure, by = Summary(), None, None
    at: str | None = ITS_START
    with stopped_by_signals():
        try:
            with reporter:
                for source in sources:
                    for part in OpenSource(source, columns, {}, max_payload=MAX_PAYLOAD_LIMIT):
                        letters = list[Letter]()
                        try:
                            for line in _put(server, source.name, part.records, summary, letters):
                                at = f"line {line} of {source.name}"
                        finally:
                            put_letters(sorted(letters, key=lambda letter: letter.line))
                        at = f"line {part.line} of {source.name}"
                        reporter.show(summary, reading=True)
            at = None
        except KeyboardInterrupt as stop:
            by = stopped_by(stop)
        except (DeliveryFailed, WrongUsage) as error:
            if isinstance(error, WrongUsage) and at == ITS_START:
                raise
            failure = str(error)
    return Result(summary, failure, by is not None, at, None, stopped_by=by or "", loaded_into=name)


def _put(server: ServerView, source: str, records: Records, summary: Summary, letters: list[Letter]) -> Iterator[int]:
    """Put them, count the answers, add those that are refused to `letters`, and give the line of each answer."""
    places = records.places()
    sent: list[tuple[int, Any, bytes]] = []
    for n, (item, record) in enumerate(zip(records.to_list(), records.message_records(), strict=True)):
        if isinstance(item, BadRecord):
            summary.dead_letters += 1
            letters.append(_letter(source, places[n], item.reason, item.allowed, b""))
        else:
            sent.append((n, item, _record_of(item) if record is None else record))
    told = server.put(line for _, _, line in sent)
    for (n, item, line), answer in zip(sent, told, strict=True):
        if answer.state is not None:
            _count(summary, item, answer.state, answer.let_go or 0)
        else:
            letters.append(_letter(source, places[n], answer.reason, answer.allowed, line))
            summary.dead_letters += 1
            summary.conflicts += answer.reason == OTHER_CONTENT.reason
        yield place[1] if (place := places[n]) else 0


def _record_of(item: Message | Cancel | Reschedule | Event) -> bytes:
    if isinstance(item, Cancel):
        return cancel_record(item.id, item.key).encode()
    if isinstance(item, Reschedule):
        return reschedule_record(item.id, item.key, item.due_ms, None).encode()
    assert isinstance(item, Event)
    return event_record(item, MAX_PAYLOAD_LIMIT).encode()


def _count(summary: Summary, item: object, state: Answer, let_go: int) -> None:
    summary.let_go += let_go
    if isinstance(item, Cancel) and state != "cancelled":
        name = "cancels_unknown" if state == "unknown" else "cancels_too_late"
    elif state == "cancelled":
        summary.accepted += not isinstance(item, Cancel)
        name = "cancelled"
    else:
        name = _COUNTS.get(state, "reschedules_too_late")
    setattr(summary, name, getattr(summary, name) + 1)


def _letter(source: str, place: tuple[str, int, bytes | None] | None, reason: str, allowed: str, line: bytes) -> Letter:
    number, record = (0, None) if place is None else place[1:]
    return Letter(source, number, reason, allowed, record or line)
