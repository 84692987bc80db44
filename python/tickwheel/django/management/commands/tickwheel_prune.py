"""`manage.py tickwheel_prune`: deletes old results."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tickwheel.django.management.database_option import add_database, database_from
from tickwheel.django.models import TaskRecord

_MOST_DAYS: Final = 36_500  # a calendar ends


class Command(BaseCommand):
    """Deletes the results of tasks that have finished."""

    help = "Delete the results of tasks that finished some days ago."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--days", type=float, default=14.0, help="Keep results so long; default: %(default)s.")
        add_database(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        """Delete them."""
        if not 0 <= options["days"] <= _MOST_DAYS:
            raise CommandError(f"--days is {options['days']:g}: it may be 0 to {_MOST_DAYS:,}")
        before = timezone.now() - timedelta(days=options["days"])
        deleted, _ = TaskRecord.objects.using(database_from(options)).filter(finished_at__lt=before).delete()
        self.stdout.write(f"results deleted: {deleted:,}")
