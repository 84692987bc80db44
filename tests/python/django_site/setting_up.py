"""Django in this process, with a database of its own; and a wait for what it does in other threads."""

import atexit
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache

import django
from django.core.management import call_command


@cache
def set_up() -> None:
    """Set Django up, once. The database is removed at the end of the process."""
    folder = tempfile.TemporaryDirectory(prefix="tickwheel-django-")
    atexit.register(folder.cleanup)
    os.environ["TICKWHEEL_SITE"] = f"{folder.name}/site.db"
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
    django.setup()
    call_command("migrate", verbosity=0)


def wait_until(holds: Callable[[], object]) -> None:
    """Looks again and again until it holds; fails if it never does."""
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)
