"""Exports what a checkpoint holds as records, for a new checkpoint of any version (`tickwheel spark-upgrade`).

    state --format_5--> places in chunks --records--> NDJSON --held.py, hold--> the state of a new checkpoint

Only this package reads old formats. A running query never does.
"""
