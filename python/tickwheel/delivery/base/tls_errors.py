"""Errors of TLS as sentences, for both sides of a port."""

import os
import ssl
from typing import Final, Literal

from tickwheel.delivery.base.errors import WrongUsage

_NO_AUTHORITY: Final = (18, 19, 20, 21)  # of OpenSSL's X509_V_ERR
_NOT_TRUSTED: Final = {
    "server": "is signed by no trusted authority: name its authority's file by --tls-ca",
    "client": "is signed by no authority of --tls-client-ca: give the client another one, or add its authority",
}


def sentence(error: BaseException, peer: Literal["server", "client"] = "server") -> str:
    """`peer` is the other side. Of another error, its text."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if getattr(error, "verify_code", 0) in _NO_AUTHORITY:
        return f"the {peer}'s certificate {_NOT_TRUSTED[peer]}"
    return f"TLS failed: {getattr(error, 'verify_message', None) or reason_of(error)}"


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words."""
    return (getattr(error, "reason", None) or error.strerror or "unknown reason").replace("_", " ").lower()


def usual_context() -> ssl.SSLContext:
    """By the authorities of the system, or of the file `SSL_CERT_FILE`. Errors: `WrongUsage` if that can't be used."""
    context = ssl.create_default_context()
    if (path := os.environ.get("SSL_CERT_FILE")) is not None:
        try:
            context.load_verify_locations(path)  # the one before has ignored its errors
        except OSError as error:
            is_tls = isinstance(error, ssl.SSLError)
            why = "has no certificate in PEM, or a damaged one" if is_tls else f"can't be read: {error.strerror}"
            raise WrongUsage(f"SSL_CERT_FILE names {path!r:.500}, which {why}: correct it, or unset it") from error
    return context
