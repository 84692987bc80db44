"""The app, for `INSTALLED_APPS`: it has the tables of results and of the outbox, and the worker."""

from django.apps import AppConfig


class TickwheelConfig(AppConfig):
    """`tickwheel.django`."""

    name = "tickwheel.django"
    label = "tickwheel"
    verbose_name = "tickwheel"
