"""A checkpoint says what may not change, on this machine and on any file system of Hadoop (rules S4, S5)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.spark.packing import VERSION
from tickwheel.spark.shape import Folder, HadoopFolder, LocalFolder, check_shape, keep_shape

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["local", "Hadoop"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Folder]:
    """Makes a folder of the test."""

    def of(name: str) -> Folder:
        path = tmp_path / name
        return HadoopFolder(request.getfixturevalue("session"), path.as_uri()) if hadoop else LocalFolder(path)

    hadoop = request.param == "Hadoop"
    return of


def test_a_checkpoint_of_another_format_or_input_is_refused_and_says_what_to_do__S4(
    tmp_path: Path, folder: Callable[[str], Folder]
) -> None:
    kept = folder("a/c")
    assert check_shape(kept, "table")
    assert not (tmp_path / "a").exists(), "nothing is written"
    keep_shape(kept, "table")
    keep_shape(kept, "table")
    assert [*kept.names()].count("tickwheel.json") == 1
    with pytest.raises(WrongUsage, match="that of another input, a table, and this one is a Kafka topic: name another"):
        keep_shape(kept, "Kafka topic")
    with pytest.raises(WrongUsage, match=r"a table, and this one is the list of files of tickwheel deliver"):
        keep_shape(kept)
    shape = tmp_path / "a" / "c" / "tickwheel.json"
    (tmp_path / "a" / "c" / ".tickwheel.json.crc").unlink(missing_ok=True)  # Hadoop's, of what it wrote
    for other in (6, VERSION + 1):
        shape.write_text(json.dumps({"format": other, "partitions": 64}))
        with pytest.raises(WrongUsage) as refused:
            keep_shape(kept, "table")
        assert str(refused.value) == (
            f"the checkpoint {kept} has the format {other}, and this version of tickwheel reads only {VERSION}: let "
            "the version that wrote it deliver all that it holds, then name a new checkpoint"
        )
    shape.write_text('{"format": 9')
    with pytest.raises(WrongUsage, match="is damaged"):
        keep_shape(kept, "table")
    shape.unlink()
    (tmp_path / "a" / "c" / "other").write_text("")
    with pytest.raises(WrongUsage, match=r"holds files, but no tickwheel.json"):
        keep_shape(kept, "table")


def test_a_folder_that_can_not_be_made_is_an_error_of_the_system(tmp_path: Path, session: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"[Nn]ot a directory"):
        keep_shape(HadoopFolder(session, str(tmp_path / "file" / "c")))
    with pytest.raises(OSError, match="no-such-scheme"):
        HadoopFolder(session, "no-such-scheme://host/c")
