"""Reminders in FastAPI: each is kept on disk until it is due, also while the server is down, and then comes out once.

`PUT /reminders/tea` with `{"text": "the tea is ready", "after_s": 180}` sets one, or sets it anew. `GET` shows it, and
`DELETE` cancels it. `GET /delivered` shows the last hundred that came out.

    REMINDERS=reminders.db uvicorn --app-dir examples reminders_fastapi:app

Run one worker: one process at a time has the store, and another one would wait until it ends. For several workers see
docs/delivery-asyncio.md.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException

from tickwheel.delivery import Answer, AsyncDeliveryQueue, Delivery

queue: AsyncDeliveryQueue


async def remind(delivery: Delivery) -> None:
    """Runs on the server's own loop, for up to 256 reminders at a time: here a program sends a mail, or a push."""
    print(f"{delivery.message.id}: {delivery.json()}", flush=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """One queue for as long as the server runs; what is not due at its end waits on disk for the next one."""
    global queue
    async with AsyncDeliveryQueue(os.environ.get("REMINDERS", "reminders.db"), to=remind) as queue:
        yield


app = FastAPI(lifespan=lifespan)


@app.put("/reminders/{name}")
async def put(name: str, text: Annotated[str, Body()], after_s: Annotated[float, Body(ge=0)]) -> dict[str, Answer]:
    answer = await queue.put(name, text, delay_ms=after_s * 1000, replace=True)
    if answer is Answer.DELIVERING:
        raise HTTPException(409, f"{name} is being sent in this moment")
    return {"answer": answer}


@app.get("/reminders/{name}")
async def show(name: str) -> dict[str, str | None]:
    found = await queue.view.show(name)
    if found is None:
        raise HTTPException(404, f"there is no reminder {name}")
    return {"state": found.state, "due": found.due}


@app.delete("/reminders/{name}")
async def cancel(name: str) -> dict[str, Answer]:
    """Answers `cancelled` if it will certainly not be sent, and otherwise why not."""
    return {"answer": await queue.cancel(name)}


@app.get("/delivered")
async def delivered() -> list[str]:
    return [message.id for message in (await queue.view.list(state="delivered", limit=100)).messages]
