"""The operator's files: tokens and certificates of the ports (rule D12).

They are read at the start, and again when the operator asks for it. If a file can't be used then, the values that were
read before stay in use, and the log says why. Open connections keep their certificate, and requests that have begun are
served.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Final

from tickwheel._event import Event
from tickwheel._printable import logger_of
from tickwheel._stopping import stop_noted
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.base.threads import start
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Tokens, read_tokens

_log = logger_of("tickwheel.delivery")
_LOOK_EVERY_S: Final = 0.1


class Credentials:
    """Errors: `WrongUsage`."""

    def __init__(self, token_file: Path | None = None, tls: TlsFiles | None = None) -> None:
        self._token_file = token_file
        self.tokens: Tokens | None = read_tokens(token_file) if token_file else None
        self.certificates = Certificates(tls) if tls else None

    def read_again(self, access: Access, say: Callable[[str], object]) -> None:
        """Read all files again; `access` gets the tokens. A file may hang, so a signal may interrupt the reading."""
        read = []
        for name, reader in self._readers(access):
            try:
                _aside(reader)
                read.append(name)
            except (DeliveryFailed, WrongUsage) as error:  # the first: there is no thread to be had
                with stop_noted():
                    _log.error("%s; %s that were read before are still in use", error, name)
        with stop_noted():
            if read:
                say(f"{' and '.join(read)} were read again")

    def _readers(self, access: Access) -> Iterator[tuple[str, Callable[[], object]]]:
        if (token_file := self._token_file) is not None:

            def read_them() -> None:
                access.tokens = self.tokens = read_tokens(token_file)

            yield "the tokens", read_them
        if self.certificates is not None:
            yield "the certificates", self.certificates.read


def _aside(reader: Callable[[], object]) -> None:
    """Call it in a thread: CPython misses a signal that comes right before a read that hangs."""
    is_over, failed = Event(), list[BaseException]()

    def read() -> None:
        try:
            reader()
        except BaseException as error:
            failed.append(error)
        is_over.set()

    start(Thread(target=read, name="reads-again", daemon=True))
    while not is_over.wait(_LOOK_EVERY_S):
        pass  # a signal raises here
    if failed:
        raise failed[0]
