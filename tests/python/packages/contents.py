"""What is in a wheel, whichever it is."""

import zipfile
from pathlib import Path

from packages.archives import CARGO, ROOT, run

MOST_BYTES = 6_000_000
"""A wheel takes 4.9 MB: SQLite, Arrow and TLS are in it. With line tables it would be several times that."""


def check_names_no_folder(wheel: Path) -> None:
    """Its libraries name no folder of the machine that built it."""
    with zipfile.ZipFile(wheel) as packed:
        libraries = [packed.read(name) for name in packed.namelist() if name.endswith(".so")]
    for folder in (ROOT, CARGO):
        assert [it for it in libraries if f"{folder}/".encode() in it] == [], f"it names {folder}"


def check_contents(wheel: Path, most_bytes: int = MOST_BYTES) -> None:
    """It has types, the licences and the README, and only what runs."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        description = packed.read(metadata).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tickwheel"}
    assert {"tickwheel/py.typed", "tickwheel/_native.pyi"} <= set(names)
    for licence in ("LICENSE", "THIRD-PARTY-NOTICES.txt"):
        assert [name for name in names if name.endswith(f"licenses/{licence}")] != []
    assert (ROOT / "README.md").read_text(encoding="utf-8") in description
    sources = {name.removeprefix("python/") for name in run("git", "ls-files", "python").splitlines()}
    assert sources - set(names) == set()
    assert wheel.stat().st_size < most_bytes
