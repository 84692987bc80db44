"""A long-poll server with a thousand clients that wait at once, over real sockets, in one asyncio loop.

A client sends `GET /poll/<topic>?after=N`. The server answers once the topic has more than N messages, or with 204
after the time that the client asked for (`Prefer: wait=1`, RFC 7240). Until then it waits in a purgatory, under
its topic. Half of the clients wait one second, the others two. After 1.5 s every topic but one gets a message.

    python examples/long_poll.py [clients]
"""

import asyncio
import io
import json
import re
import resource
import sys
import time
from asyncio import StreamReader, StreamWriter
from http import HTTPStatus
from http.client import parse_headers
from typing import NamedTuple

from tickwheel import DelayedOperation, DelayedOperationPurgatory

TOPICS = ("arts", "cars", "food", "law", "music", "sports", "travel", "weather", "work", "silence")


class Poll(DelayedOperation):
    """Waits until there are more than `after` messages."""

    def __init__(self, wait_s: int, messages: list[str], after: int) -> None:
        super().__init__(wait_s * 1000)
        self.messages, self.after = messages, after

    def try_complete(self) -> bool:
        return len(self.messages) > self.after and self.force_complete()


class Server:
    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self.purgatory = purgatory
        self.messages: dict[str, list[str]] = {topic: [] for topic in TOPICS}

    def publish(self, topic: str, message: str) -> int:
        """Answers every client that waits for the topic; returns how many."""
        self.messages[topic].append(message)
        return self.purgatory.check_and_complete(topic)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answers one client until it disconnects. A disconnect during a wait is noticed at the deadline."""
        try:
            status = HTTPStatus.OK
            while status < HTTPStatus.BAD_REQUEST:
                status, body = await self.answer(await reader.readuntil(b"\r\n\r\n"))
                headers = "" if status == HTTPStatus.NO_CONTENT else f"Content-Length: {len(body)}\r\n"
                headers += "Connection: close\r\n" if status >= HTTPStatus.BAD_REQUEST else ""
                writer.write(f"HTTP/1.1 {status} {status.phrase}\r\n{headers}\r\n".encode() + body)
                await writer.drain()
        except (EOFError, ConnectionError, asyncio.LimitOverrunError):
            pass  # the client disconnected, or its request is too long
        finally:
            writer.close()

    async def answer(self, head: bytes) -> tuple[HTTPStatus, bytes]:
        request, _, headers = head.decode("latin-1").partition("\r\n")
        asked = re.fullmatch(r"GET /poll/(\w+)\?after=(\d{1,9}) HTTP/1\.1", request)
        if asked is None:
            return HTTPStatus.BAD_REQUEST, b""
        topic, after = asked[1], int(asked[2])
        if topic not in self.messages:
            return HTTPStatus.NOT_FOUND, b""
        wait = re.search(r"(?mi)^prefer:.*\bwait=(\d{1,3})\b", headers)
        poll = Poll(int(wait[1]) if wait else 30, self.messages[topic], after)
        if not await self.purgatory.wait(poll, [topic]):
            return HTTPStatus.NO_CONTENT, b""
        return HTTPStatus.OK, json.dumps(poll.messages[after:]).encode()


class Answer(NamedTuple):
    topic: str
    status: int
    wait_s: int
    asked_s: float
    answered_s: float


async def ask(port: int, topic: str, wait_s: int, all_connected: asyncio.Barrier) -> Answer:
    """One client: connects, and when all are connected, asks for the first message of a topic."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await all_connected.wait()
    asked_s = time.monotonic()
    writer.write(f"GET /poll/{topic}?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait={wait_s}\r\n\r\n".encode())
    status, _, headers = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    length = parse_headers(io.BytesIO(headers)).get("Content-Length", "0")
    body = await reader.readexactly(int(length))
    answered_s = time.monotonic()
    writer.close()
    assert body in (b"", json.dumps([f"news of {topic}"]).encode())
    return Answer(topic, int(status.split()[1]), wait_s, asked_s, answered_s)


async def run(clients: int) -> None:
    with DelayedOperationPurgatory("polls") as purgatory:
        server = Server(purgatory)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=clients)
        port = listening.sockets[0].getsockname()[1]
        all_connected = asyncio.Barrier(clients + 1)
        published_s = {}
        async with listening, asyncio.TaskGroup() as group:
            wishes = [(TOPICS[n % len(TOPICS)], 1 + n // len(TOPICS) % 2) for n in range(clients)]
            asking = [group.create_task(ask(port, topic, wait_s, all_connected)) for topic, wait_s in wishes]
            await all_connected.wait()
            print(f"{clients} clients are connected, and ask")
            await asyncio.sleep(1.5)
            print(f"1.5 s later {len(purgatory)} still wait")
            for topic in TOPICS[:-1]:
                published_s[topic] = time.monotonic()
                print(f"  {topic}: {server.publish(topic, f'news of {topic}')} answered at once")
                await asyncio.sleep(0.02)
        report([task.result() for task in asking], published_s)
        counts = f"watched {purgatory.watched}, num_delayed {purgatory.num_delayed}, len(purgatory) {len(purgatory)}"
        print(f"left behind: {counts}")


def report(answers: list[Answer], published_s: dict[str, float]) -> None:
    took_ms = sorted((a.answered_s - published_s[a.topic]) * 1000 for a in answers if a.status == HTTPStatus.OK)
    waited = [a for a in answers if a.status == HTTPStatus.NO_CONTENT]
    early = sum(a.answered_s - a.asked_s < a.wait_s for a in waited)
    print(f"got news: {len(took_ms)}")
    if took_ms:
        p50, p99 = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
        print(f"  publish to answer: p50 {p50:.1f}, p99 {p99:.1f}, last {took_ms[-1]:.1f} ms")
    print(f"got 204: {len(waited)}, of them early: {early}")


def main() -> None:
    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    open_files = 2 * clients + 50  # both ends of each connection are in this process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < open_files:
        sys.exit(f"long_poll.py: {clients} clients need {open_files} open files, the hard limit is {hard}: start fewer")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, open_files), hard))
    asyncio.run(run(clients))


if __name__ == "__main__":
    main()
