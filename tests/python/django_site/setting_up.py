"""Django in this process, with a database of its own."""

import os
import tempfile
from functools import cache

import django
from django.core.management import call_command


@cache
def set_up() -> "tempfile.TemporaryDirectory[str]":
    """Set Django up, once. The folder is removed with the process."""
    folder = tempfile.TemporaryDirectory(prefix="tickwheel-django-")
    os.environ["TICKWHEEL_SITE"] = f"{folder.name}/site.db"
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    return folder
