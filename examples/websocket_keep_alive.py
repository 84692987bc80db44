"""A websocket server that notices dead connections: a ping in each period, and an answer within a time.

The library's own keep-alive is off; the periods and the time-outs are tickwheel's. For the demonstration one client
answers its pings, and another one is cut off: its network takes everything, and gives nothing back.

    python examples/websocket_keep_alive.py
"""

import asyncio
import contextlib
import time

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tickwheel import aio

PERIOD_S = 0.2
ANSWER_WITHIN_S = 0.5


async def keep_alive(connection: ServerConnection) -> None:
    """Pings in each period, without drift; closes a connection that does not answer in time."""
    async for _ in aio.every(PERIOD_S):
        try:
            async with aio.timeout(ANSWER_WITHIN_S):
                await (await connection.ping())
        except TimeoutError:
            connection.transport.abort()  # nobody is there to close it with
            return


async def greet(connection: ServerConnection) -> None:
    name = str(await connection.recv())
    began_s = time.monotonic()
    pinging = asyncio.create_task(keep_alive(connection))
    with contextlib.suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(f"{name} said {message!r}")
    pinging.cancel()
    print(f"{name} is gone")
    if name == "the one that was cut off":
        least_s, took_s = PERIOD_S + ANSWER_WITHIN_S, time.monotonic() - began_s
        assert took_s >= least_s, "not before its time"


async def main() -> None:
    async with serve(greet, "127.0.0.1", 0, ping_interval=None) as server:
        address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connect(address, ping_interval=None) as good:
            cut = await connect(address, ping_interval=None)
            await cut.send("the one that was cut off")
            await good.send("the good one")
            cut.transport.pause_reading()  # it answers no ping any more
            await aio.sleep(3 * (PERIOD_S + ANSWER_WITHIN_S))
            await good.send("hello")
            print(await good.recv())
        cut.transport.abort()


if __name__ == "__main__":
    asyncio.run(main())
