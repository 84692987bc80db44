"""The app, for `INSTALLED_APPS`: it has the tables of results and of the outbox, and the worker."""

from django.apps import AppConfig


class TickwheelConfig(AppConfig):
    """`tickwheel.django`."""

    name = "tickwheel.django"
    label = "tickwheel"
    verbose_name = "tickwheel"

    def ready(self) -> None:
        """Registers the check of `TASKS` for `manage.py check`, which else does not know of it."""
        from tickwheel.django import api  # noqa: F401, its import registers the check
