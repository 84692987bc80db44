"""The TLS files of a client of the ports (rule D12)."""

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.base.secret_files import read_file
from tickwheel.delivery.base.tls_errors import reason_of
from tickwheel.delivery.serve.tls import MOST_BYTES, load_certificate


@dataclass(frozen=True, slots=True)
class ClientTls:
    """In PEM. `ca`: the authorities that may sign a server's certificate. `cert` and `key`: the client's own, if the
    server wants a client certificate.
    """

    ca: bytes
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, ca: Path, cert: Path | None = None, key: Path | None = None) -> "ClientTls":
        """From files. The key is in the file of the certificate if it is not given. Errors: `WrongUsage`."""
        authorities = read_file("--tls-ca", ca, MOST_BYTES)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise WrongUsage(f"--tls-ca {ca} has no certificate in PEM: {reason_of(error)}") from error
        if cert is None:
            if key is not None:
                raise WrongUsage("--tls-key needs --tls-cert FILE, the certificate of this client")
            return cls(authorities)
        own = read_file("--tls-cert", cert, MOST_BYTES, is_secret=key is None)
        own_key = read_file("--tls-key", key, MOST_BYTES, is_secret=True) if key else own
        load_certificate(context, cert, key or cert)
        return cls(authorities, own, own_key)

    def context(self) -> ssl.SSLContext:
        """For a client of HTTP."""
        context = ssl.create_default_context(cadata=self.ca.decode("ascii", "ignore"))
        if self.cert is not None:
            # Python reads a certificate from a file only.
            with tempfile.TemporaryDirectory(prefix="tickwheel-") as folder:
                path = Path(folder) / "cert.pem"
                path.touch(0o600)
                path.write_bytes(self.cert + b"\n" + (self.key or b""))
                context.load_cert_chain(path)
        return context
