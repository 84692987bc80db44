"""A receiver of webhooks in a process of its own: it answers each request 2 ms after it came.

    python -m benches.python.delivery.receiver

The first line of its output is its port. It ends with its standard input, and then writes the lateness in each body.
"""

import asyncio
import json
import sys
from typing import ClassVar

ANSWER_AFTER_S = 0.002
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
_HEAD_END = b"\r\n\r\n"


class Receiver(asyncio.Protocol):
    """A connection; requests may follow each other on it, one after the other's answer."""

    bodies: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport for the answers."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers each complete request."""
        self._rest += data
        while (end := self._rest.find(_HEAD_END)) >= 0:
            head = self._rest[:end].lower()
            at = head.index(b"content-length:") + 15
            size = int(head[at:].split(b"\r\n", 1)[0])
            if len(self._rest) < end + 4 + size:
                return
            body, self._rest = self._rest[end + 4 : end + 4 + size], self._rest[end + 4 + size :]
            self.answer(body, self._transport)

    def answer(self, body: bytes, transport: asyncio.Transport) -> None:
        """Keeps the body, and answers later."""
        Receiver.bodies.append(body)
        asyncio.get_running_loop().call_later(ANSWER_AFTER_S, transport.write, ANSWER)


async def main() -> None:
    """Receive until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    json.dump([json.loads(body)["lateness_ms"] for body in Receiver.bodies], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
