"""Errors of TLS as sentences, each with what to do, for both sides of a port."""

import os
import ssl
from typing import Final, Literal

from tickwheel.delivery.base.errors import WrongUsage

_ENDED, _BEGINS_LATER, _OTHER_HOST, _OTHER_ADDRESS = 10, 9, 62, 64  # of OpenSSL's X509_V_ERR
_VERIFIED: Final = {
    _ENDED: "has ended: renew it, or set this machine's clock",
    _BEGINS_LATER: "is not valid yet: set this machine's clock, or wait",
}
_NOT_TRUSTED: Final = {
    "server": "is signed by no trusted authority: name its authority's file by --tls-ca",
    "client": "is signed by no authority of --tls-client-ca: give the client another one, or add its authority",
}
_NOTHING_IN_COMMON: Final = "both sides have no version or cipher of TLS in common: use TLS 1.2 or 1.3"
_BY_REASON: Final = {
    "ALERT_UNKNOWN_CA": "the other side does not trust this side's certificate: name its authority's file there, by "
    "--tls-ca or --tls-client-ca",
    "ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept this side's certificate: its log may say why",
    "CERTIFICATE_REQUIRED": "the server wants a certificate of its client: give one by --tls-cert",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client gave no certificate, which --tls-client-ca requires",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS at this port: is it http://, or another port?",
    "RECORD_LAYER_FAILURE": "the other side does not speak TLS at this port: is it http://, or another port?",
    "HTTP_REQUEST": "the other side speaks HTTP without TLS: write https://",
    "PROTOCOL_VERSION": _NOTHING_IN_COMMON,
    "UNSUPPORTED_PROTOCOL": _NOTHING_IN_COMMON,
    "NO_SHARED_CIPHER": _NOTHING_IN_COMMON,
    "ALERT_HANDSHAKE_FAILURE": _NOTHING_IN_COMMON,
    "UNEXPECTED_EOF": "the other side closed the connection in the middle of TLS: its log may say why",
}
"""By a part of OpenSSL's reason. The first one that fits counts."""


def sentence(error: BaseException, peer: Literal["server", "client"] = "server") -> str:
    """`peer` is the other side. Of another error, its text."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if (code := getattr(error, "verify_code", 0)) in (_OTHER_HOST, _OTHER_ADDRESS):
        told = str(getattr(error, "verify_message", "")).rstrip(".")
        return f"the server's certificate is for another name ({told}): write a name of the certificate in the address"
    if code:
        return f"the {peer}'s certificate {_VERIFIED.get(code, _NOT_TRUSTED[peer])}"
    reason = getattr(error, "reason", None) or ("UNEXPECTED_EOF" if isinstance(error, ssl.SSLEOFError) else str(error))
    found = (told for part, told in _BY_REASON.items() if part in reason)
    return next(found, f"TLS failed ({reason.replace('_', ' ').lower()}): the log of the other side may say why")


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
