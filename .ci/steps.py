"""Runs the checks: `steps.py test` before a change is merged, `steps.py all` is what CI runs. Needs Python 3.11 alone.

It says first what it will do and how long that takes, then how each step ended, and at the end one line. The output of
a step is in `build/test`; the end of it is shown if the step fails. The other steps run all the same.
"""

import ctypes
import fcntl
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build/test"
BIN = ROOT / ".venv/bin"
MAKE = "make --no-print-directory"
CLIPPY = "cargo clippy --locked --all-targets"
PYTEST = f"{BIN}/python -m pytest --dist loadfile --max-worker-restart=0 --durations=10 --color=no"
SHORT, LONG = "not long and not packages and not wheels", "long and not packages and not wheels"
EVERY_S = 60.0  # between two signs of life
SLACK_S = 300  # a step may take four times as long as usual, and this long
SHOWN_LINES, SHOWN_CHARACTERS = 80, 400
PR_SET_CHILD_SUBREAPER = 36
CLEAN_UP_S = 20  # from Ctrl-C to the end by force
TESTS = re.compile(r"pytest|cargo test(?!.*--no-run)")
HURRIES: list[bool] = []  # a signal came after the first one
ENVIRONMENT = {"PYO3_PYTHON": f"{BIN}/python"}


@dataclass(frozen=True)
class Step:
    """Commands, run one after the other until one fails. `about_s`: on two idle cores, from a fresh clone."""

    name: str
    what: str
    about_s: int
    commands: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


MODEL = {"RUSTFLAGS": "--cfg tickwheel_model", "CARGO_TARGET_DIR": "target/model"}
LOOM = {"RUSTFLAGS": "--cfg tickwheel_loom", "CARGO_TARGET_DIR": "target/loom"}
TEST = (
    Step("packages", "Python packages, pinned, into .venv", 60, (f"{MAKE} set-up",)),
    Step(
        "compile",
        "the three crates with their tests, and the extension",
        250,
        ("cargo test --locked --workspace --no-run", f"{MAKE} .venv/dev"),
    ),
    Step(
        "lints",
        "formats, lints, types, the notices of crates",
        60,
        (
            "cargo fmt --all --check",
            f"{CLIPPY} --workspace -- -D warnings",
            f"{BIN}/ruff format --check",
            f"{BIN}/ruff check",
            f"{BIN}/mypy",
            ".ci/notices --check",
        ),
    ),
    Step("rust", "the tests of the crates, and the examples in their docs", 250, ("cargo test --locked --workspace",)),
    Step(
        "python",
        "the tests of the Python package, with a smoke test of each process, and Spark's in one JVM",
        300,
        (f"{PYTEST} --numprocesses 4 -m '{SHORT}' tests/python tests/spark",),
    ),
)
ALL = (
    *TEST,
    Step("model-shuttle", "models of the timer and the purgatory", 75, ("cargo test --locked --lib model",), MODEL),
    Step("model-loom", "models of the lock", 45, ("cargo test --locked --lib loom",), LOOM),
    Step(
        "parking-lot",
        "the timer with parking_lot's lock",
        90,
        ("cargo test --locked --features parking_lot",),
    ),
    Step(
        "variants",
        "lints of the other builds: parking_lot, delivery without webhooks, the benchmarks",
        100,
        (
            "cargo clippy --locked --all-targets -p tickwheel -p tickwheel-delivery --no-default-features "
            "--features tickwheel/parking_lot -- -D warnings",
            *(
                f"cd benches/{crate} && cargo fmt --check && {CLIPPY} --target-dir {ROOT}/target/benches -- -D warnings"
                for crate in ("peers", "instructions")
            ),
            f"{BIN}/mypy --strict examples",
            f"{BIN}/mypy --strict --explicit-package-bases benches",
            f"{BIN}/mypy --strict .ci/steps.py .ci/docs/*.py",
        ),
    ),
    Step(
        "pages",
        "the documentation of the crates and the site, without a warning; the examples in Rust",
        60,
        (
            f"{MAKE} docs",
            *(f"cargo run --locked --quiet --example {path.stem}" for path in sorted((ROOT / "examples").glob("*.rs"))),
            "cargo run --locked --quiet -p tickwheel-delivery --example delivery",
        ),
    ),
    Step(
        "simulation",
        "the engine of delivery by 1,000 seeds",
        240,
        ("cargo test --locked --workspace --lib -- simulation customers",),
        {"TICKWHEEL_SEEDS": "1000"},
    ),
    Step(
        "python-long",
        "kills, clusters, a broker, a browser, valgrind, fuzzers",
        1200,  # Spark's tests are two groups, and the longest
        (f"{PYTEST} --numprocesses 4 --long --no-loadscope-reorder -m '{LONG}' tests/spark tests/python",),
    ),
    Step("archives", "the crates, the sdist and the wheel, installed and used", 170, (f"{MAKE} packages",)),
    Step("django", "Django's own tests of tasks", 60, (f"{MAKE} django-tests",)),
)


def seconds(all_of_them: float) -> str:
    """In minutes and seconds."""
    minutes, rest = divmod(round(all_of_them), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def below(pid: int) -> list[int]:
    """The process and all that descend from it, also those in groups of their own."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            stat = (folder / "stat").read_text(errors="replace")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def adopt_orphans() -> None:
    """From now on a process whose parent ends is a child of this one, on Linux, so that `below` finds it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end(process: "subprocess.Popen[bytes] | None", before: set[int]) -> None:
    """Ends a command that still runs, as by Ctrl-C, so that pytest cleans up; then all that it left behind. If a signal
    came while the command was started, there is no `process` yet, and all that was started is ended at once.
    """
    deadline_s, started = time.monotonic() + CLEAN_UP_S, {*below(os.getpid())}
    try:
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(ProcessLookupError):  # the shell ends at once, pytest after its clean-up: an empty group
                while time.monotonic() < deadline_s and not HURRIES:
                    process.poll()
                    os.killpg(process.pid, 0)
                    time.sleep(0.05)
    finally:
        for pid in (started | {*below(os.getpid())}) - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process is not None:
            process.wait()


def stop(number: int, _frame: object) -> None:
    """The end that a signal asks for: the step is ended on the way out, which no further signal interrupts."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is stop:
            signal.signal(each, hurry)
    sys.exit(128 + number)


def hurry(_number: int, _frame: object) -> None:
    """A second signal ends the waiting for the clean-up."""
    HURRIES.append(True)


class Run:
    """One step, its log, and what its runners counted."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.log = LOGS / f"{step.name}.log"
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.failed: list[str] = []
        self.took_s = 0.0

    def do(self) -> None:
        """Runs the commands; what fails is in `failed`."""
        start = time.monotonic()
        with self.log.open("w", encoding="utf-8") as out:
            for command in self.step.commands:
                print(f"$ {command}", file=out, flush=True)
                if self._call(command, out, start) != 0:
                    self.failed.append(command)
                    break
        self.took_s = time.monotonic() - start
        self._count()

    def _call(self, command: str, out: IO[str], start: float) -> int:
        """The exit code. A step that takes far too long is ended, with all its processes."""
        limit_s, before = SLACK_S + 4 * self.step.about_s, {*below(os.getpid())}
        process = None
        try:
            process = subprocess.Popen(
                command, shell=True, cwd=ROOT, env=os.environ | ENVIRONMENT | self.step.env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            while True:
                try:
                    return process.wait(EVERY_S)
                except subprocess.TimeoutExpired:
                    passed_s = time.monotonic() - start
                    print(f"      {seconds(passed_s)}{self._progress()}", flush=True)
                    if passed_s > limit_s:
                        print(f"      over its limit of {seconds(limit_s)}: ended", flush=True)
                        return 1
        finally:
            end(process, before)

    def _text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def _progress(self) -> str:
        found = re.findall(r"\[ *(\d+%)\]", self._text())
        return f": {found[-1]}" if found else ""

    def _count(self) -> None:
        """Reads the closing lines of cargo test and of pytest. A runner that ran no test has failed."""
        text = self._text()
        for passed, failed in re.findall(r"^test result: .*? (\d+) passed; (\d+) failed;", text, re.M):
            self.counts.update(passed=int(passed), failed=int(failed))
        for line in re.findall(r"^=+ (.*) in [\d.]+s.*=+$", text, re.M):
            for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", line):
                self.counts[{"error": "failed", "errors": "failed"}.get(what, what)] += int(number)
        for number, reason in re.findall(r"^SKIPPED \[(\d+)\] [^ ]+: (.*)$", text, re.M):
            self.reasons[reason] += int(number)
        for reason in set(re.findall(r"^(Spark tests are skipped: .*)$", text, re.M)):
            self.reasons[reason] += 1
            self.counts["skipped"] += 1
        runs = [command for command in self.step.commands if TESTS.search(command)]
        if runs and not self.failed and (not self.counts["passed"] or self.counts["failed"]):
            self.failed.append(runs[0])

    def __str__(self) -> str:
        counted = [f"{self.counts[what]} {what}" for what in ("passed", "failed", "skipped") if self.counts[what]]
        return ", ".join(["FAILED" if self.failed else "done", *counted]) + f" in {seconds(self.took_s)}"


def main(tier: str) -> int:
    """The exit code: 1 if anything failed."""
    signal.signal(signal.SIGINT, stop)  # in the background it is ignored, and the steps send it to what they test
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # under nohup it goes on when the terminal is closed
            signal.signal(ending, stop)
    for name in ("FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS"):  # the closing lines are read
        os.environ.pop(name, None)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    steps = {"test": TEST, "all": ALL}[tier]
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"another run uses {LOGS}: wait for its end, or use another clone")
            return 2
        return run_all(steps)


def run_all(steps: tuple[Step, ...]) -> int:
    """Runs them in order, and says how each ended; the exit code."""
    about_s = sum(step.about_s for step in steps)
    print(f"{len(steps)} steps, about {about_s // 60} minutes on two cores from a fresh clone; logs are in build/test")
    start, runs, code = time.monotonic(), list[Run](), None
    try:
        for number, step in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {step.name}: {step.what}", flush=True)
            runs.append(run := Run(step))
            run.do()
            print(f"      {run}", flush=True)
            if run.failed:
                last = run.log.read_text("utf-8", "replace").splitlines()[-SHOWN_LINES:]
                print(*(line[:SHOWN_CHARACTERS] for line in last), sep="\n", flush=True)
    except (KeyboardInterrupt, SystemExit) as ending:
        code = ending.code if isinstance(ending, SystemExit) else 130
        print("interrupted", flush=True)
        for run in runs[-1:]:
            run.failed.append("interrupted")
    counts = sum((run.counts for run in runs), Counter())
    for reason, number in sum((run.reasons for run in runs), Counter()).most_common():
        print(f"skipped: {number} times, {reason}")
    for run in runs:
        for command in run.failed:
            print(f"FAILED: {run.step.name}: {command}, see {run.log.relative_to(ROOT)}")
    failed = counts["failed"] + sum(1 for run in runs if run.failed and not run.counts["failed"])
    print(f"all of it took {seconds(time.monotonic() - start)}")
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
    return int(code or bool(failed))


if __name__ == "__main__":
    if sys.argv[1:] not in (["test"], ["all"]):
        sys.exit("usage: steps.py test, or steps.py all")
    adopt_orphans()
    sys.exit(main(sys.argv[1]))
