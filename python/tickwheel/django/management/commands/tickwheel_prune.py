"""`manage.py tickwheel_prune`: deletes old results."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tickwheel.django.models import TaskRecord


class Command(BaseCommand):
    """Deletes the results of tasks that have finished."""

    help = "Delete the results of tasks that finished some days ago."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--days", type=float, default=14.0, help="Keep results so long; default: %(default)s.")
        parser.add_argument("--database", default="default", help="The alias of the database; default: %(default)s.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Delete them."""
        if options["days"] < 0:
            raise CommandError(f"--days is {options['days']:g}: give 0 or more")
        before = timezone.now() - timedelta(days=options["days"])
        deleted, _ = TaskRecord.objects.using(options["database"]).filter(finished_at__lt=before).delete()
        self.stdout.write(f"results deleted: {deleted:,}")
