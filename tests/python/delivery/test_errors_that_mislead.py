"""Errors that name a wrong place, a wrong number, or what was not read (D2, D9, D20)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel
from tickwheel.delivery import BadRecord, DeliveryQueue, WrongUsage

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


def test_the_byte_of_an_error_counts_from_the_first_line__D2(tmp_path: Path) -> None:
    payload = b'[1,\n"two",\n"three",\noops]'
    with DeliveryQueue(tmp_path / "s.db", to=print) as queue, pytest.raises(BadRecord) as refused:
        queue.put("a", msgspec.Raw(payload), due=FAR_MS)
    assert refused.value.reason.startswith("the payload is not JSON: ")
    at = int(refused.value.reason.rpartition(" ")[2])
    assert payload[:at].endswith(b"\no"), refused.value.reason


@pytest.mark.parametrize(
    ("option", "value"), [("concurrency", True), ("spare", True), ("max_attempts", 1.5), ("concurrency", 2.5)]
)
def test_a_number_that_is_refused_is_none_of_the_allowed_ones__D9(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(WrongUsage) as refused:
        DeliveryQueue(tmp_path / "s.db", to=print, **{option: value})
    assert "whole number" in str(refused.value), "each of these lies between the bounds that the error names"


def test_a_check_counts_no_messages_of_a_store_that_it_can_not_read__D20(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=print) as queue:
        queue.put_many([(f"m{n}", FAR_MS, n) for n in range(100)])
    store.write_bytes(store.read_bytes()[:20_000])
    checked = subprocess.run(
        [sys.executable, "-m", "tickwheel", "store", "check", store], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 1
    assert "can't be used" in checked.stdout + checked.stderr
    assert "messages 0, waiting 0" not in checked.stdout + checked.stderr


def test_a_backup_into_a_missing_folder_says_so_as_a_restore_does__D20(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=print) as queue:
        queue.put("a", due=FAR_MS)
    asked = [sys.executable, "-m", "tickwheel", "store", "backup", "s.db", "missing/b.db"]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "there is no folder" in ended.stderr
    assert ended.returncode == 2


@pytest.mark.parametrize(
    "asked",
    [
        *(
            ["deliver", "-", option, ""]
            for option in ("--store", "--dead-letters", "--summary", "--report", "--record")
        ),
        *(["serve", "--store", "s.db", option, ""] for option in ("--store", "--token-file", "--tls-cert")),
        *([name, ""] for name in ("list", "dead", "status", "pause", "resume", "report", "analyze")),
        *(["store", name, "", ""] for name in ("backup", "restore")),
        *(["store", "check", ""], ["store", "compact", ""], ["show", "", "a"]),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused_as_an_empty_key_is__D9(asked: list[str]) -> None:
    ended = CliRunner().invoke(tickwheel, asked)
    assert ended.exit_code == 2
    assert "it is empty: name a file or a folder" in ended.output


def test_an_empty_input_is_not_the_working_folder__D11(tmp_path: Path) -> None:
    (tmp_path / "other.ndjson").write_text('{"id": "not asked for", "due": 1700000000000}\n')
    asked = [sys.executable, "-m", "tickwheel", "deliver", ""]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "not asked for" not in ended.stdout
    assert ended.returncode == 2
