"""The page, of which the report replaces only the text between the two markers of a suite.

<!-- generated: rust -->
...
<!-- end -->
"""

from .errors import ReportError

END = "<!-- end -->"


def with_part(page: str, suite: str, part: str) -> str:
    """The page with `part` as the suite's part. The rest of it is unchanged."""
    start = f"<!-- generated: {suite} -->"
    before, found, rest = page.partition(f"{start}\n")
    inside, closed, after = rest.partition(END)
    if not found or not closed or start in rest or "<!-- generated:" in inside:
        raise ReportError(
            f"the page must have one line {start!r} and after it one line {END!r}: put them where the part belongs"
        )
    return f"{before}{start}\n\n{part.strip()}\n\n{END}{after}"
