"""The error for bad input of the report."""


class ReportError(Exception):
    """Says what was found, and what to do."""
