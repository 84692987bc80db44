"""The file of `--log-file` (D15, D12)."""

import logging
import stat
from pathlib import Path

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.spark.driver_log import LogFile

pytestmark = pytest.mark.timeout(60)


def test_lines_are_appended_for_the_owner_alone_also_after_the_file_was_moved__D15_D12(tmp_path: Path) -> None:
    log = logging.Logger("own")
    log.addHandler(handler := LogFile(tmp_path / "log"))
    log.warning("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.warning("two")
    handler.close()
    assert [(tmp_path / name).read_text() for name in ("log.1", "log")] == ["one\n", "two\n"]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("log.1", "log")] == [0o600] * 2


def test_a_line_that_can_not_be_written_ends_nothing__D15(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    log = logging.Logger("own")
    log.addHandler(handler := LogFile(tmp_path / "logs" / "log"))
    (tmp_path / "logs").rename(tmp_path / "gone")
    log.warning("one")
    handler.close()
    assert capfd.readouterr().err == ""


def test_a_file_that_can_not_be_opened_is_wrong_usage__D2(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "log")
    for name in ("none/log", "link"):
        with pytest.raises(WrongUsage, match=f"--log-file {tmp_path / name} can't be written: No such file"):
            LogFile(tmp_path / name)
