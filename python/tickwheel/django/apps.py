"""The app, for `INSTALLED_APPS`: it has the tables of results and of the outbox, and the worker."""

from django.apps import AppConfig


class TickwheelConfig(AppConfig):
    """`tickwheel.django`."""

    name = "tickwheel.django"
    label = "tickwheel"
    verbose_name = "tickwheel"

    def ready(self) -> None:
        """Registers the checks for `manage.py check`: of `TASKS`, which else is not known, and of the tables."""
        from tickwheel.django import api, tables_check  # noqa: F401, their import registers the checks
