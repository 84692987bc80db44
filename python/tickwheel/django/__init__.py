"""Tasks of Django on tickwheel: a backend with `run_after`, to the millisecond, and a worker.

    enqueue -> a result and a row of the outbox, in the caller's transaction -> tickwheel_worker -> the task runs

`docs/django.md` says how to set it up, and what is promised. It works with `django.tasks` of Django 6.0 and later, and
with the package `django-tasks` where that is missing.
"""
