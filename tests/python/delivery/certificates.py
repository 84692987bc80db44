"""Certificates for a test, made by openssl: an authority, and what it has signed."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair(NamedTuple):
    cert: Path
    key: Path

    @property
    def command(self) -> tuple[str, str]:
        """As requests and curl take it."""
        return str(self.cert), str(self.key)


def authority(folder: Path, name: str = "ca") -> Pair:
    """One that signs others."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}", "-out", pair.cert, "-keyout", pair.key)
    return pair


def signed(by: Pair, name: str = "server") -> Pair:
    """For 127.0.0.1 and localhost, and for the client of that name."""
    folder = by.cert.parent
    pair, request, names = (
        Pair(folder / f"{name}.pem", folder / f"{name}.key"),
        folder / f"{name}.csr",
        folder / f"{name}.ext",
    )
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl("req", *_KEY, "-subj", f"/CN={name}", "-out", request, "-keyout", pair.key)
    signing = ("-CA", by.cert, "-CAkey", by.key, "-CAcreateserial", "-days", "2", "-extfile", names)
    _openssl("x509", "-req", "-in", request, *signing, "-out", pair.cert)
    return pair


def with_passphrase(pair: Pair, name: str) -> Path:
    """The same key, protected."""
    path = pair.key.with_name(name)
    _openssl("pkey", "-in", pair.key, "-aes128", "-passout", "pass:secret", "-out", path)
    return path


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
