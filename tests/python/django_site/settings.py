"""The settings of a site for tests.

`TICKWHEEL_SITE`: its database, a path or the address of PostgreSQL. `TICKWHEEL_ROLE`: what it assumes in PostgreSQL.
`TICKWHEEL_KEEPS`: it keeps connections to PostgreSQL.
"""

import os

from psycopg.conninfo import conninfo_to_dict

_PLACE = os.environ["TICKWHEEL_SITE"]
if _PLACE.startswith("postgresql:"):
    _GIVEN = conninfo_to_dict(_PLACE)
    _DATABASE = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _GIVEN["dbname"],
        "USER": _GIVEN["user"],
        "PASSWORD": _GIVEN["password"],
        "HOST": _GIVEN["host"],
        "CONN_MAX_AGE": None if "TICKWHEEL_KEEPS" in os.environ else 0,
        "OPTIONS": {"connect_timeout": 10, "assume_role": os.environ.get("TICKWHEEL_ROLE")},
    }
else:
    _OPTIONS = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}
    _DATABASE = {"ENGINE": "django.db.backends.sqlite3", "NAME": _PLACE, "OPTIONS": _OPTIONS}

DATABASES = {"default": _DATABASE}
if not _PLACE.startswith("postgresql:"):
    DATABASES["second"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{_PLACE}-second"}
INSTALLED_APPS = ["tickwheel.django"]
SECRET_KEY = "for tests"
USE_TZ = True
TASKS = {
    "default": {"BACKEND": "tickwheel.django.backend.TickwheelBackend", "QUEUES": ["default", "mail"]},
}
