"""The certificates of the port (rule D12): files in PEM, read at the start, and again when the operator asks for it.

With `client_ca` a client must show a certificate that an authority in that file signed.
TLS is 1.2 at least.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.base.secret_files import read_file
from tickwheel.delivery.base.tls_errors import reason_of

MOST_BYTES: Final = 16 << 20
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate: name the key that the certificate was made for",
    "KEY_TYPE_MISMATCH": "the key does not belong to the certificate: name the key that the certificate was made for",
    "EE_KEY_TOO_SMALL": "the key is too short: make one of 2,048 bits or more",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """`key` is in the file of the certificate if it is not given. Errors: `WrongUsage`."""

    cert: Path
    key: Path | None = None
    client_ca: Path | None = None

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, client_ca: Path | None) -> "TlsFiles | None":
        """From the options."""
        if cert is None:
            if key or client_ca:
                given = "--tls-key" if key else "--tls-client-ca"
                raise WrongUsage(f"{given} needs --tls-cert FILE, the certificate of this server")
            return None
        return cls(cert, key, client_ca)


class Certificates:
    """`context`: for new connections; an open connection keeps the context with which it began."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.read()

    def read(self) -> None:
        """Read the files, again. Errors: `WrongUsage`; then the context is as it was."""
        self.context = _context(self._files)


def _context(files: TlsFiles) -> ssl.SSLContext:
    key = files.key or files.cert
    read_file("--tls-cert", files.cert, MOST_BYTES, is_secret=files.key is None)
    if files.key:
        read_file("--tls-key", files.key, MOST_BYTES, is_secret=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, files.cert, key)
    if files.client_ca:
        read_file("--tls-client-ca", files.client_ca, MOST_BYTES)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise WrongUsage(
                f"--tls-client-ca {files.client_ca} has no certificate in PEM: {reason_of(error)}"
            ) from error
    return context


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Both belong together. Errors: `WrongUsage`."""

    class Encrypted(Exception):
        pass

    def refuse() -> str:
        raise Encrypted

    try:
        # Without the function, a key with a passphrase would ask for it on the terminal.
        context.load_cert_chain(cert, key, password=refuse)
    except Encrypted:
        raise WrongUsage(
            f"--tls-key {key} is protected by a passphrase, which a server without a terminal can't ask for: "
            "openssl pkey -in KEY -out NEW writes it without"
        ) from None
    except ssl.SSLError as error:
        if error.reason in _REASONS:
            raise WrongUsage(f"--tls-cert {cert} and --tls-key {key}: {_REASONS[error.reason]}") from error
        if key == cert and b"-----BEGIN CERTIFICATE" in (pem := cert.read_bytes()) and b"PRIVATE KEY-----" not in pem:
            raise WrongUsage(f"--tls-cert {cert} has no key: name the file of its key with --tls-key") from error
        raise WrongUsage(
            f"--tls-cert {cert} and --tls-key {key}: no certificate and key in PEM: {reason_of(error)}"
        ) from error
