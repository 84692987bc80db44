"""The operator's files: tokens and certificates of the ports (rule D12).

They are read at the start, and again when the operator asks for it. If a file can't be used then, the values that were
read before stay in use, and the log says why. Open connections keep their certificate, and requests that have begun are
served.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tickwheel._printable import logger_of
from tickwheel._stopping import stop_noted
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Tokens, read_tokens

_log = logger_of("tickwheel.delivery")


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
                reader()
                read.append(name)
            except WrongUsage as error:
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
