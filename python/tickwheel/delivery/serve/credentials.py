"""What the operator keeps in files for the ports: tokens and certificates (rule D12).

They are read at the start, and again when the operator asks for it. A file that can't be used then changes nothing: the
ports go on with what was read before, and the log says why. Connections that are open keep their certificate, and
requests that have begun are served.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.serve.access import Access
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Tokens, read_tokens

_log = logging.getLogger("tickwheel.delivery")


class Credentials:
    """Errors: `WrongUsage`."""

    def __init__(self, token_file: Path | None = None, tls: TlsFiles | None = None) -> None:
        self._token_file = token_file
        self.tokens: Tokens | None = read_tokens(token_file) if token_file else None
        self.certificates = Certificates(tls) if tls else None

    def read_again(self, access: Access, say: Callable[[str], object]) -> None:
        """Read all files again; `access` gets the tokens."""
        read = []
        try:
            if self._token_file is not None:
                access.tokens = self.tokens = read_tokens(self._token_file)
                read.append("the tokens")
        except WrongUsage as error:
            _log.error("%s; the tokens that were read before are still in use", error)
        try:
            if self.certificates is not None:
                self.certificates.read()
                read.append("the certificates")
        except WrongUsage as error:
            _log.error("%s; the certificates that were read before are still in use", error)
        if read:
            say(f"{' and '.join(read)} were read again")
