"""Accepts messages in a store, and returns the result of each."""

from collections.abc import Sequence

from tickwheel.delivery.store import Incoming, Known, Outcome, Store


def accept(store: Store, items: Sequence[Incoming], now_ms: int = 0) -> list[tuple[Known, bool]]:
    """In a transaction: for each message its known state, and whether it was new; the store's answers must agree."""
    before, seen = store.last_seq, set()
    answers = store.accept(items, now_ms)
    found = []
    for item, answer in zip(items, answers, strict=True):
        known = store.find(item.message.key, item.message.id)
        assert known is not None
        is_new = known.seq > before and known.seq not in seen
        seen.add(known.seq)
        if isinstance(answer, Known):
            assert not is_new
            assert (answer.seq, answer.due_ms, answer.content) == (known.seq, known.due_ms, known.content)
        elif answer is None:
            assert is_new
            assert known.outcome is Outcome.CANCELLED
        else:
            assert is_new
            assert (answer, known.outcome) == (known.seq, None)
        found.append((known, is_new))
    return found
