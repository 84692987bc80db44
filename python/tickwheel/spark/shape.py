"""The settings of a checkpoint that may not change while it holds messages (rules S4, S5).

It is a small file, `tickwheel.json`, beside the query's own files. It is written before the first query starts.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.packing import VERSION, not_this

NAME: Final = "tickwheel.json"
_AS_MADE: Final = {"format": VERSION, "partitions": PARTITIONS}
_INPUT: Final = "input"


class Folder(Protocol):
    """Where a checkpoint is. Errors: `OSError`."""

    def read(self, name: str) -> bytes | None:
        """A file's bytes, if there is one."""

    def write(self, name: str, data: bytes) -> None:
        """A new file, which is there with all its bytes, or not at all. Makes the folder."""

    def names(self, under: str = "") -> Sequence[str]:
        """The files and folders in it, or in a folder in it."""


def read_text(folder: Folder, name: str) -> str | None:
    """The text of a file, if there is one. Errors: `WrongUsage` if it is none."""
    found = folder.read(name)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{folder}/{name} is damaged ({error}): restore it from a copy") from error


def keep_shape(folder: Folder, kind: str | None = None) -> None:
    """Write to the checkpoint what may not change while messages are held. Errors: as of `check_shape`."""
    if check_shape(folder, kind):
        folder.write(NAME, msgspec.json.encode(_AS_MADE if kind is None else {**_AS_MADE, _INPUT: kind}))


def check_shape(folder: Folder, kind: str | None = None) -> bool:
    """Whether the checkpoint is still to be made. Writes nothing. `kind`: of the input, unless it is a list of files.

    Errors: `WrongUsage` if it is no checkpoint, is damaged, or has another format or another input.
    """
    try:
        found = folder.read(NAME)
        if found is None:
            _refuse_others(folder)
            return True
    except OSError as error:
        raise WrongUsage(f"{folder}/{NAME} can't be read: {error.strerror}: name another checkpoint") from error
    try:
        before = msgspec.json.decode(found, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongUsage(
            f"{folder}/{NAME} is damaged: restore it from a copy, or name another checkpoint: what this one "
            "holds is lost, unless its files are given again"
        ) from error
    for name, value in _AS_MADE.items():
        if before.get(name) != value:
            raise WrongUsage(not_this(f"the checkpoint {folder}", name, before.get(name), value))
    if before.get(_INPUT) != kind:
        raise WrongUsage(
            f"the checkpoint {folder} is that of another input, {_shown(before.get(_INPUT))}, and this one is "
            f"{_shown(kind)}: name another checkpoint"
        )
    return False


def _shown(kind: object) -> str:
    return "the list of files of tickwheel deliver" if kind is None else f"a {kind}"


def _refuse_others(folder: Folder) -> None:
    """Refuse files without a shape: another program's folder, or a checkpoint that has lost a part."""
    if any(not name.startswith(".") and name != "lost+found" for name in folder.names()):  # a file system keeps that
        raise WrongUsage(
            f"{folder} holds files, but no {NAME}, so it is no checkpoint of tickwheel, or damaged: name a "
            f"folder that is new or empty, or restore {NAME} from a copy"
        )


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        """As of `Folder`."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """As of `Folder`."""
        self._path.mkdir(parents=True, exist_ok=True)
        new = (self._path / name).with_name(f".{Path(name).name}")
        new.write_bytes(data)
        new.rename(self._path / name)

    def names(self, under: str = "") -> Sequence[str]:
        """As of `Folder`."""
        path = self._path / under
        return [entry.name for entry in path.iterdir()] if path.is_dir() else []


class HadoopFolder:
    """A folder that Spark can use, by Hadoop's own client in the JVM: HDFS, an object store, a local one."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        self._session = session
        self._uri = uri.rstrip("/") or uri
        with _as_os_error():
            self._new_path = session.sparkContext._jvm.org.apache.hadoop.fs.Path
            self._files = self._new_path(uri).getFileSystem(session.sparkContext._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return self._uri

    @property
    def full_name(self) -> str:
        """Its address with the file system."""
        return str(self._files.makeQualified(self._new_path(self._uri)).toString())

    @property
    def scheme(self) -> str:
        """The scheme of its file system: `file` for a local one."""
        return str(self._files.getUri().getScheme())

    def read(self, name: str) -> bytes | None:
        """As of `Folder`."""
        path = self._new_path(f"{self._uri}/{name}")
        with _as_os_error():
            if not self._files.exists(path):
                return None
            stream = self._files.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        """As of `Folder`: a rename is one step on a file system, and on an object store the file appears as a whole."""
        path = self._new_path(f"{self._uri}/{name}")
        new = self._new_path(path.getParent(), f".{path.getName()}.new")
        with _as_os_error():
            stream = self._files.create(new, True)
            try:
                stream.write(data)
            finally:
                stream.close()
            if not self._files.rename(new, path):
                raise OSError(0, "the file can't be renamed", str(path))

    def files_below(self) -> Iterator[tuple[str, str, int]]:
        """Each file in it and below: its path from here, its address, and when it was changed, in milliseconds since
        1970. On a local disk some microseconds each, elsewhere a millisecond.
        """
        root = self.full_name.rstrip("/")
        if self.scheme == "file":
            local = Path(root.removeprefix("file:"))
            for path in (
                [local] if local.is_file() else (Path(at, it) for at, _, names in os.walk(local) for it in names)
            ):
                with suppress(FileNotFoundError):  # removed meanwhile
                    yield str(path.relative_to(local)), f"file:{path}", path.stat().st_mtime_ns // 1_000_000
            return
        with _as_os_error():
            found = self._files.listFiles(self._new_path(self._uri), True)
            while found.hasNext():
                status = found.next()
                address = str(status.getPath().toString())
                yield address.removeprefix(root).lstrip("/"), address, int(status.getModificationTime())

    def names(self, under: str = "") -> Sequence[str]:
        """As of `Folder`."""
        if self.scheme == "file":  # Hadoop hides its checksum files, on which Spark stumbles
            local = Path(self.full_name.removeprefix("file:")) / under
            if not local.is_file():
                return LocalFolder(local).names()
        path = self._new_path(f"{self._uri}/{under}" if under else self._uri)
        with _as_os_error():
            return [it.getPath().getName() for it in self._files.listStatus(path)] if self._files.exists(path) else []


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raises Java's errors as `OSError`."""
    try:
        yield
    except Py4JJavaError as error:
        raise OSError(0, str(error.java_exception.getMessage() or error.java_exception)) from error
