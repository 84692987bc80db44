"""What goes wrong with the report's input."""


class ReportError(Exception):
    """Says what was found and what to do."""
