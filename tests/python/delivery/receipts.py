"""Receipts that a test makes, in the place of the engine."""

from tickwheel.delivery import Answer


class Told:
    """The receipt of messages with these answers."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = [*answers]

    def answers(self) -> list[Answer]:
        return self._answers

    def rows(self) -> list[tuple[int, str, Answer, int | None]]:
        return [(line, "put", answer, None) for line, answer in enumerate(self._answers, 1)]
