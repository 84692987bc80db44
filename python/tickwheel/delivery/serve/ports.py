"""The ports of `tickwheel serve` and their threads (rules D9, D11): one thread for HTTP; Flight has its own."""

import asyncio
import logging
import socket
import threading
from contextlib import closing
from functools import partial

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.running import Running
from tickwheel.delivery.serve.access import Access, Address

_REQUESTS_END_WITHIN_S = 5
_STREAMS_END_WITHIN_S = 1
_CONNECTIONS = 256  # each may have a body in memory


class Ports:
    """Both ports, open from the start, and their threads. Errors: `WrongUsage` if a port can't be opened."""

    def __init__(
        self, listen: Address, flight: Address, token: bytes | None, max_payload: int, running: Running
    ) -> None:
        import uvicorn

        from tickwheel.delivery.serve.flight import FlightServer
        from tickwheel.delivery.serve.http import app

        access = Access(token, listen, flight)
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app(running, access, max_payload),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=_REQUESTS_END_WITHIN_S,
            )
        )
        self._socket = _listen(listen)
        try:
            with closing(_listen(flight)) as probe:  # its error has the reason, Flight's has not
                port = probe.getsockname()[1]
            location = flight.url("grpc", port)
            self._flight = FlightServer(location, partial(running.submit, max_payload=max_payload), access, max_payload)
        except BaseException:
            self._socket.close()
            raise
        self.urls = f"{listen.url('http', self._socket.getsockname()[1])} and {location}"
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="http-serve", daemon=True)
        self._thread.start()

    def are_open(self, timeout_s: float) -> bool:
        """Whether they are still open after this time. Raises the error that closed them."""
        self._over.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return not self._over.is_set()

    def stop_requests(self) -> None:
        """Close the HTTP port. Requests in progress still get their answer, for some seconds."""
        self._server.should_exit = True
        self._thread.join(_REQUESTS_END_WITHIN_S + 1)

    def stop_streams(self) -> bool:
        """Close the Flight port. Returns whether all streams have ended."""
        return self._flight.stop(_STREAMS_END_WITHIN_S)

    def _serve(self) -> None:
        """In the thread. Uvicorn sets no signal handlers outside the main thread."""
        try:
            asyncio.run(self._server.serve([self._socket]))
        except BaseException as error:
            self._failure = error
        self._over.set()


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    # With the protocol named: only for TCP does asyncio turn off Nagle's algorithm, which delays an answer by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier process may have just ended
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address.ip, address.port))
        listening.listen(_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise WrongUsage(
            f"{address.option} {address.host}:{address.port} can't be opened: {error.strerror}; "
            "name another address, or port 0 for any free port"
        ) from error
    return listening
