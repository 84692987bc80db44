"""Django's own tests of tasks, on the backend here: `make django-tests`.

They are taken from the source package of Django. Those of its dummy backend, which only keeps tasks, and of its
immediate one, which runs them at once, are run with this backend in their place: one that keeps tasks in the database,
and one that also runs them as the worker does. They may use the database. Where there is no Django 6 for this Python,
they are run with the package `django-tasks`, under its names. What fails on Django's own backends too does not count.
Takes a network; the outcome is printed, and is 1 if another test fails that is not in `NOT_FOR_THIS`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "build/django-tests"
PYTHON = PLACE / "venv/bin/python"
SOURCE = "django==6.1.3"
IS_NATIVE = sys.version_info >= (3, 12)
INSTALLED = [SOURCE] if IS_NATIVE else ["django==5.2.19", "django-tasks==0.12.0"]
NEEDED = ["msgspec"]

OWN = """
from tickwheel.django.backend import TickwheelBackend
from tickwheel.django.models import TaskRecord


class Waiting(TickwheelBackend):
    @property
    def results(self):
        return [self.get_result(record.id) for record in TaskRecord.objects.order_by("enqueued_at")]

    def clear(self):
        TaskRecord.objects.all().delete()


class AtOnce(TickwheelBackend):
    def enqueue(self, task, args, kwargs):
        from tickwheel.django.running import Runner, TaskFailed

        result = super().enqueue(task, args, kwargs)
        try:
            Runner(self.database, 1).run_task(result.id)
        except TaskFailed:
            pass
        result.refresh()
        return result
"""
SETTINGS = """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["tickwheel.django"]
SECRET_KEY = "for tests"
USE_TZ = True
TASKS = {"default": {"BACKEND": "own.Waiting", "QUEUES": []}}
"""
RUN = """
import json
import django
django.setup()
from django.test.runner import DiscoverRunner
runner = DiscoverRunner(verbosity=0, interactive=False)
runner.setup_test_environment()
suite = runner.build_suite(["tasks"])
databases = runner.setup_databases()
result = runner.run_suite(suite)
failed = [getattr(test, "test_case", test) for test, _ in result.failures + result.errors]  # or its subtest
bad = sorted({test.id() for test in failed})
print(json.dumps({"run": result.testsRun, "bad": bad}))
"""

_ASYNC = "asks the database inside the event loop, which Django forbids"
_MEMORY = "changes what the dummy backend has in memory"
_PRIORITY = "needs priorities"
NOT_FOR_THIS = {
    "DummyBackendTestCase.test_enqueue_task_async": _ASYNC,
    "DummyBackendTestCase.test_get_missing_result": _ASYNC,
    "DummyBackendTestCase.test_refresh_result": _MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": _MEMORY,
    "ImmediateBackendTestCase.test_cannot_get_result": "says that results can't be read",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "says that results can't be read",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "says that there is no run_after",
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "wants Ctrl-C in a task to reach the caller of enqueue",
    "TaskTestCase.test_chained_using": _PRIORITY,
    "TaskTestCase.test_enqueue_task_async": _ASYNC,
    "TaskTestCase.test_get_missing_result": _ASYNC,
    "TaskTestCase.test_invalid_priority": _PRIORITY,
    "TaskTestCase.test_refresh_result": _ASYNC,
    "TaskTestCase.test_using_priority": _PRIORITY,
}


def main() -> int:
    prepare()
    _, bad_before = outcome("before")
    count, bad = outcome("here")
    print(f"{' '.join(INSTALLED)}: {count} tests; {len(bad_before)} fail on its own backends, {len(bad)} on this one")
    worse = 0
    for name in sorted(bad - bad_before):
        reason = NOT_FOR_THIS.get(".".join(name.split(".")[-2:]))
        worse += reason is None
        print(f"  {name} {reason or 'IS WRONG'}")
    return int(bool(worse) or not count)


def outcome(kind: str) -> tuple[int, set[str]]:
    """How many tests were run, and which have failed."""
    done = subprocess.run(
        [PYTHON, "-c", RUN], cwd=PLACE / kind, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings"},
    )  # fmt: skip
    (PLACE / f"{kind}.log").write_text(done.stderr)
    if done.returncode:
        raise SystemExit(done.stderr[-3_000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return found["run"], set(found["bad"])


def prepare() -> None:
    """An environment that finds the package here, and the tests with this backend in the place of Django's."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        call(sys.executable, "-m", "venv", PLACE / "venv")
        call(PYTHON, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *NEEDED)
        call(PYTHON, "-m", "pip", "install", "--quiet", *INSTALLED)
        download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--ignore-requires-python"]
        call(PYTHON, "-m", "pip", *download, "-d", PLACE, SOURCE)
    (packages,) = (PLACE / "venv/lib").glob("*/site-packages")
    (packages / "tickwheel.pth").write_text(f"{ROOT / 'python'}\n")
    (archive,) = PLACE.glob("django-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(PLACE / "source", filter="data")
    for kind in ("before", "here"):
        site = PLACE / kind
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(PLACE / "source" / archive.name.removesuffix(".tar.gz") / "tests/tasks", site / "tasks")
        for path in (site / "tasks").glob("*.py"):
            text = path.read_text()
            path.write_text(as_installed(on_this(text) if kind == "here" else text))
        (site / "own.py").write_text(OWN)
        (site / "settings.py").write_text(SETTINGS)


def on_this(text: str) -> str:
    """A test with this backend in the place of Django's."""
    for module, theirs, own in (("dummy", "DummyBackend", "Waiting"), ("immediate", "ImmediateBackend", "AtOnce")):
        text = text.replace(f'"django.tasks.backends.{module}.{theirs}"', f'"own.{own}"')
        text = text.replace(f"from django.tasks.backends.{module} import", f"from own import {own} as")
    text = re.sub(r"\bSimpleTestCase\b", "TestCase", text)
    return text.replace("available_apps = []", 'available_apps = ["tickwheel.django"]')


def as_installed(text: str) -> str:
    """A test with the names of the package that is installed."""
    if IS_NATIVE:
        return text
    text = text.replace(
        "from django.tasks import Task,", "from django_tasks.base import Task\nfrom django_tasks import"
    )
    return re.sub(r"\b(InvalidTask|InvalidTaskBackend)\b", r"\1Error", text.replace("django.tasks", "django_tasks"))


def call(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


if __name__ == "__main__":
    sys.exit(main())
