"""A long poll in FastAPI: a request waits in a purgatory until there is news of its topic, or its time is over.

`GET /topics/tea?after=0&wait_s=30` answers with the messages after the first `after` ones, at once if there are any,
and with 204 when nothing has come in time. `POST /topics/tea` with a text as its body wakes all that wait for it.

    uvicorn --app-dir examples long_poll_fastapi:app
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, Query, Response

from tickwheel import DelayedOperation, DelayedOperationPurgatory

topics: defaultdict[str, list[str]] = defaultdict(list)
purgatory: DelayedOperationPurgatory


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """One purgatory for as long as the server runs; whoever waits at its end is answered."""
    global purgatory
    with DelayedOperationPurgatory("long polls") as purgatory:
        yield


app = FastAPI(lifespan=lifespan)


class News(DelayedOperation):
    """Waits until there are more than `after` messages."""

    def __init__(self, messages: list[str], after: int, wait_s: float) -> None:
        super().__init__(wait_s * 1000)
        self.messages, self.after = messages, after

    def try_complete(self) -> bool:
        return len(self.messages) > self.after and self.force_complete()


@app.get("/topics/{topic}", response_model=None)
async def poll(
    topic: str, after: Annotated[int, Query(ge=0)] = 0, wait_s: Annotated[float, Query(ge=0, le=60)] = 30
) -> list[str] | Response:
    messages = topics[topic]
    if await purgatory.wait(News(messages, after, wait_s), [topic]):
        return messages[after:]
    return Response(status_code=204)


@app.post("/topics/{topic}", status_code=201)
async def publish(topic: str, message: Annotated[str, Body(media_type="text/plain")]) -> dict[str, int]:
    topics[topic].append(message)
    return {"answered": purgatory.check_and_complete(topic)}
