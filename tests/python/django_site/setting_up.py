"""A site of Django for tests, once in a process, with a database of its own."""

import tempfile
from functools import cache
from pathlib import Path

import django
from django.conf import settings


@cache
def set_up() -> None:
    """Configure Django for this process."""
    folder = tempfile.TemporaryDirectory(prefix="tickwheel-django-")
    set_up.folder = folder  # type: ignore[attr-defined]  # removed with the process
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder.name) / "site.db")}},
        USE_TZ=True,
    )
    django.setup()
