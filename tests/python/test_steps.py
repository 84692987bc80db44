"""The two tiers: each test is in one of them, a page says what is where, and no failure is hidden."""

import fcntl
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROW = re.compile(r"^\| `([\w-]+)` \| (test|test-all) \| (.*) \|$", re.MULTILINE)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


STEPS = loaded(ROOT / ".ci/steps.py")
FOR_ALL_TESTS = loaded(ROOT / "tests/conftest.py")


def test_the_page_has_each_step_and_says_which_command_runs_it() -> None:
    known = [(step.name, "test" if step in STEPS.TEST else "test-all") for step in STEPS.ALL]
    assert [(name, tier) for name, tier, _ in ROW.findall(PAGE)] == known
    assert STEPS.ALL[: len(STEPS.TEST)] == STEPS.TEST


def test_the_page_says_what_is_long() -> None:
    (told,) = [text for name, _, text in ROW.findall(PAGE) if name == "python-long"]
    assert {reason for reason in FOR_ALL_TESTS.LONG.values() if reason not in told} == set()
    missing = [path for path in FOR_ALL_TESTS.LONG if not (ROOT / path.split("::")[0]).exists()]
    assert missing == []


def test_each_python_test_is_in_one_of_the_two_tiers_or_has_a_command_of_its_own() -> None:
    short = f"-m '{STEPS.SHORT}' tests/python tests/spark"
    long = f" --long --no-loadscope-reorder -m '{STEPS.LONG}' tests/spark tests/python"
    commands = {step.name: step.commands for step in STEPS.ALL}
    assert any(command.endswith(short) for command in commands["python"])
    assert any(command.endswith(long) for command in commands["python-long"])
    own = {"packages", "wheels"}
    assert {word for which in (STEPS.SHORT, STEPS.LONG) for word in re.findall(r"not (\w+)", which)} == own | {"long"}


def test_ci_installs_each_program_that_a_test_looks_for() -> None:
    run = (ROOT / ".ci/run").read_text()
    files = [it for it in (ROOT / "tests").rglob("*.py") if "soak" not in it.parts]  # CI has no soak
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    looked_for = {found[1] for line in lines if (found := re.search(r"shutil\.which\(\"([\w-]+)\"", line))}
    assert {"chromium", "curl", "nginx"} <= looked_for
    of_the_prerequisites = {"cargo", "rustc"}
    assert {name for name in looked_for - of_the_prerequisites if f"command -v {name} " not in run} == set()
    assert {
        name for line in lines for name in re.findall(r"apt-get install ([\w-]+)", line) if f"({name})" not in run
    } == set()


def test_for_the_long_tests_no_file_is_read_that_has_none() -> None:
    config = SimpleNamespace(getoption=lambda name: name == "--long")

    def is_read(path: Path) -> bool:
        return all(FOR_ALL_TESTS.pytest_ignore_collect(it, config) is None for it in (path, path.parent))

    read = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if is_read(path)}
    places = [path.split("::")[0] for path in FOR_ALL_TESTS.LONG]
    assert {path for path in read if not path.startswith(tuple(places))} == set()
    assert {place for place in places if not any(path.startswith(place) for path in read)} == set()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runner with these steps writes its logs here."""
    monkeypatch.setattr(STEPS, "LOGS", tmp_path)
    monkeypatch.setattr(STEPS, "ROOT", tmp_path)
    return tmp_path


def run(made: Path, monkeypatch: pytest.MonkeyPatch, *commands: str) -> int:
    steps = tuple(STEPS.Step(f"s{n}", "a step", 1, (command,)) for n, command in enumerate(commands))
    monkeypatch.setattr(STEPS, "TEST", steps)
    code: int = STEPS.main("test")
    return code


CARGO = "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s"
PYTEST = "SKIPPED [2] a.py:3: no promtool: apt-get install prometheus\n=== 5 passed, 2 skipped in 3.21s ==="


def test_the_last_line_counts_what_every_runner_counted(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(made, monkeypatch, f"printf '{CARGO}\\n{CARGO}\\n'", f"printf '{PYTEST}\\n'", "true") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "19 passed, 0 failed, 2 skipped"
    assert "skipped: 2 times, no promtool: apt-get install prometheus" in said
    assert said[0].startswith("3 steps, about ")


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("exit 3", "0 passed, 1 failed, 0 skipped"),
        ("echo the middle of it; kill -9 $$", "0 passed, 1 failed, 0 skipped"),
        (f"printf '{CARGO}\\n'; exit 101", "7 passed, 1 failed, 0 skipped"),
        ("true cargo test model", "0 passed, 1 failed, 0 skipped"),
        ("echo '=== 2 failed, 4 passed in 9.00s ===' # pytest", "4 passed, 2 failed, 0 skipped"),
        ("echo '=== 3 failed, 4 passed, 1 error in 9.00s (0:00:09) ==='; exit 1", "4 passed, 4 failed, 0 skipped"),
    ],
)
def test_a_step_that_fails_is_told_and_the_others_run(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, last: str
) -> None:
    assert run(made, monkeypatch, command, "echo the other > other") == 1
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == last
    assert f"FAILED: s0: {command}, see s0.log" in said
    assert (made / "other").read_text() == "the other\n"


def test_what_a_step_started_ends_with_it_when_it_takes_too_long(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(STEPS, "EVERY_S", 0.2)
    monkeypatch.setattr(STEPS, "SLACK_S", -4)
    monkeypatch.setattr(STEPS, "CLEAN_UP_S", 0.5)
    assert run(made, monkeypatch, "sleep 600 & echo $! > pid; wait") == 1
    assert "over its limit" in capsys.readouterr().out
    ends(int((made / "pid").read_text()))


def test_spark_that_is_missing_is_told(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "Spark tests are skipped: pyspark is not installed"
    assert run(made, monkeypatch, f"printf '{line}\\n=== 5 passed in 3.21s ===\\n' # pytest") == 0
    said = capsys.readouterr().out.splitlines()
    assert f"skipped: 1 times, {line}" in said
    assert said[-1] == "5 passed, 0 failed, 1 skipped"


RUNNER = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("steps", {str(ROOT / ".ci/steps.py")!r})
steps = sys.modules["steps"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(steps)
import pathlib
steps.LOGS = steps.ROOT = pathlib.Path(sys.argv[1])
steps.CLEAN_UP_S = 5
steps.adopt_orphans()
steps.TEST = (steps.Step("s", "a step", 60, (sys.argv[2],)),)
sys.exit(steps.main("test"))
"""
# It cleans up for longer than the shell that started it lives, as pytest does.
STEP = f"""{sys.executable} -c '
import pathlib, subprocess, time
try:
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path("pid").write_text(str(sleeper.pid))
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.5)
    pathlib.Path("cleaned").write_text("cleaned")
'; true"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_step_and_all_that_it_started_after_its_clean_up(tmp_path: Path, number: int) -> None:
    # Under nohup pytest ignores SIGHUP, and a process inherits that.
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)" + RUNNER
    command = [sys.executable, "-c", program, tmp_path, STEP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as runner:
        begins(runner, tmp_path / "pid")
        runner.send_signal(number)
        assert runner.wait(30) != 0
        assert runner.stdout is not None
        assert runner.stdout.read().splitlines()[-1] == b"0 passed, 1 failed, 0 skipped"
    assert (tmp_path / "cleaned").read_text() == "cleaned"
    ends(int((tmp_path / "pid").read_text()))


def test_a_signal_between_two_steps_ends_with_the_last_line_too(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_run: object) -> NoReturn:
        raise SystemExit(130)

    monkeypatch.setattr(STEPS.Run, "__str__", interrupted)
    assert run(made, monkeypatch, f"printf '{CARGO}\\n'", "echo the other > other") == 130
    assert capsys.readouterr().out.splitlines()[-1] == "7 passed, 1 failed, 0 skipped"
    assert not (made / "other").exists()


def test_a_second_signal_ends_at_once_what_does_not_clean_up(tmp_path: Path) -> None:
    stubborn = "trap '' INT; echo $$ > pid; while :; do sleep 0.05; done"
    program = RUNNER.replace("CLEAN_UP_S = 5", "CLEAN_UP_S = 600")
    with subprocess.Popen([sys.executable, "-c", program, tmp_path, stubborn], stderr=subprocess.DEVNULL) as runner:
        begins(runner, tmp_path / "pid")
        while runner.poll() is None:  # the first begins the clean-up, a later one ends it
            runner.send_signal(signal.SIGTERM)
            time.sleep(0.002)  # so that one comes while the last processes are ended
        assert runner.wait(30) != 0
    ends(int((tmp_path / "pid").read_text()))


def test_what_a_step_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    left = "setsid -f sh -c 'echo $$ > pid; sleep 600'; while ! test -s pid; do sleep 0.01; done"
    subprocess.run([sys.executable, "-c", RUNNER, tmp_path, left], check=True, stdout=subprocess.DEVNULL, timeout=60)
    ends(int((tmp_path / "pid").read_text()))


def test_a_second_run_in_the_same_folder_is_refused(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"{sys.executable} -c 'import sys; print(sys.argv)' first"
    with (made / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(made, monkeypatch, program) == 2
        assert "another run uses" in capsys.readouterr().out
    assert run(made, monkeypatch, program) == 0


def test_under_nohup_it_goes_on_when_the_terminal_is_closed_and_colours_hide_no_count(tmp_path: Path) -> None:
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" + RUNNER
    step = f"kill -HUP $PPID; test -z \"$FORCE_COLOR$PYTEST_ADDOPTS\" && printf '{PYTEST}\\n' # pytest"
    env = os.environ | {"FORCE_COLOR": "1", "PYTEST_ADDOPTS": "-q"}
    command = [sys.executable, "-c", program, str(tmp_path), step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout.splitlines()[-1] == "5 passed, 0 failed, 2 skipped", done.stdout + done.stderr


def begins(runner: "subprocess.Popen[bytes]", pid: Path) -> None:
    """Waits until the step has written its number."""
    while not pid.exists() or not pid.read_text().strip():
        assert runner.poll() is None, "the runner has ended"
        time.sleep(0.01)


def ends(pid: int) -> None:
    """Waits until the process, which was killed, is gone."""
    end_s = time.monotonic() + 10
    with suppress(OSError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < end_s, "it lives on"
            time.sleep(0.01)


def test_in_the_background_the_steps_get_sigint_as_they_would_in_a_terminal() -> None:
    program = f"""
import importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
spec = importlib.util.spec_from_file_location("steps", {str(ROOT / ".ci/steps.py")!r})
steps = sys.modules["steps"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(steps)
import pathlib, tempfile
steps.LOGS = steps.ROOT = pathlib.Path(tempfile.mkdtemp())
child = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
steps.TEST = (steps.Step("s", "a step", 1, (f"{{sys.executable}} -c '{{child}}'",)),)
sys.exit(steps.main("test"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stdout
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
