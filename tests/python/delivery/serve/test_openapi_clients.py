"""What tools make of `docs/openapi.yaml`: a client that was generated, and requests that were (rules D11, D14)."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Served

pytestmark = pytest.mark.timeout(300)

FILE = Path(__file__).parents[4] / "docs/openapi.yaml"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method"
)
USES_IT = """
import sys

from tickwheel_client.api.many_at_once import begin
from tickwheel_client.api.messages import cancel, list_, reschedule, show, show_by_query, submit
from tickwheel_client.client import Client
from tickwheel_client.models import Asked, AskedKind, Due, Record, RecordMissedType1

client = Client(base_url=sys.argv[1])
beat = Record(id="beat", every=60_000, missed=RecordMissedType1.ALL, payload={"n": 1})
for body in Record(id="a/b", key="k", delay_ms=600_000.0, payload={"pay": "now"}), Record(id="c", delay_ms=1e9), beat:
    answer = submit.sync_detailed(client=client, body=body)
    print(answer.status_code.value, answer.parsed.state)
shown = show.sync(client=client, id="a/b", key="k")
print(shown.state, shown.payload, shown.payload == show_by_query.sync(client=client, id="a/b", key="k").payload)
print(show.sync(client=client, id="c").payload)
print(reschedule.sync(client=client, id="c", body=Due(delay_ms=2e9)).state)
print(sorted(message.id.partition("@")[0] for message in list_.sync(client=client).messages))
print(cancel.sync(client=client, id="c").state)
print(begin.sync(client=client, body=Asked(kind=AskedKind.CANCEL, key="k")).state)
"""


def run(folder: Path, *command: str) -> str:
    """The output of a command that succeeds."""
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr[-2_000:]
    return ended.stdout


def test_a_client_that_was_generated_puts_shows_moves_lists_and_cancels__D11(served: Served, tmp_path: Path) -> None:
    generate = "from openapi_python_client.cli import app; app()"
    how = ("--path", str(FILE), "--meta", "none", "--output-path", str(tmp_path / "tickwheel_client"))
    run(tmp_path, sys.executable, "-c", generate, "generate", *how)
    assert run(tmp_path, sys.executable, "-c", USES_IT, f"http://127.0.0.1:{served.port}").splitlines() == [
        "201 accepted",
        "201 accepted",
        "201 accepted",
        "waiting {'pay': 'now'} True",
        "{}",
        "rescheduled",
        "['a/b', 'beat', 'c']",
        "cancelled",
        "accepted",
    ]


def test_requests_that_were_generated_are_answered_as_the_file_says__D11(tmp_path: Path) -> None:
    """Right and wrong ones. `/events` has no end, and no tool makes a stream of Arrow for `/hand-off`."""
    served = Served(tmp_path)
    try:
        where = ("run", str(FILE), "--url", f"http://127.0.0.1:{served.port}", "--seed", "1", "--checks", CHECKS)
        which = ("--phases", "examples,coverage,fuzzing", "--max-examples", "20")
        left_out = ("--exclude-path", "/events", "--exclude-path", "/hand-off")
        run(tmp_path, sys.executable, "-m", "schemathesis.cli", "--no-color", *where, *which, *left_out)
    finally:
        served.close()
