"""The page that people write and the report fills in: only what stands between a suite's two markers is replaced.

<!-- generated: rust -->
...
<!-- end -->
"""

from .errors import ReportError

END = "<!-- end -->"


def with_part(page: str, suite: str, part: str) -> str:
    """The page with `part` as the suite's part; all else is as it was."""
    start = f"<!-- generated: {suite} -->"
    before, found, rest = page.partition(f"{start}\n")
    inside, closed, after = rest.partition(END)
    if not found or not closed or start in rest or "<!-- generated:" in inside:
        raise ReportError(
            f"the page must have one line {start!r} and after it one line {END!r}: put them where the part belongs"
        )
    return f"{before}{start}\n\n{part.strip()}\n\n{END}{after}"
