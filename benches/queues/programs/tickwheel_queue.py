"""tickwheel: a store in a file, jobs to a Python function. Durable: what is accepted is on the disk (D1)."""

from pathlib import Path

from tickwheel.delivery import Delivery, DeliveryQueue

from .common import TEXT, Job, Ran, Request, main


class Tickwheel:
    """Nothing is sent while the store is paused; to work, it is opened again with the function."""

    def open(self, request: Request) -> None:
        self._store = Path(request.folder) / "store.db"
        self._queue = DeliveryQueue(self._store, to=lambda _: None)
        self._queue.pause()

    def put(self, jobs: list[Job]) -> None:
        if len(jobs) == 1:
            ((number, due_ms),) = jobs
            self._queue.put(f"{number}", {"text": TEXT}, due=due_ms)
        else:
            self._queue.put_many((f"{number}", due_ms, {"text": TEXT}) for number, due_ms in jobs)

    def work(self, ran: Ran) -> None:
        def take(delivery: Delivery) -> None:
            ran(int(delivery.message.id))

        self._queue.close()
        self._queue = DeliveryQueue(self._store, to=take)
        self._queue.resume()

    def close(self) -> None:
        self._queue.close()


if __name__ == "__main__":
    main(Tickwheel())
