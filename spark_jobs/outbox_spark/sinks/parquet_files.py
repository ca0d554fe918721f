"""Files of Parquet targets, wherever Hadoop's FileSystem reaches: list, read, move, and make one exactly once."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError

PENDING = "_pending"
"""Folder of files that have not got their name yet."""

# A file appears when it is closed, and only if nothing is there then. S3A has it from Hadoop 3.4.2.
_CONDITIONAL = "fs.option.create.conditional.overwrite"
# Object stores whose rename is a copy, which replaces what is there.
_ONLY_CONDITIONAL = frozenset({"s3", "s3a", "s3n"})
# Creates with a precondition of its own, and shows the object when it is closed.
_CREATES_ONCE = frozenset({"gs"})


@dataclass(frozen=True)
class Entry:
    """A file or folder in a listing."""

    name: str
    modified: float
    """Seconds since 1970, by the clock of the file system."""


class Files:
    """The folder of one table. Paths are relative to it."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark._jvm
        self._jvm, self._folder = jvm, folder
        root = jvm.org.apache.hadoop.fs.Path(folder)
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._files.makeQualified(root)
        self._scheme = str(self._root.toUri().getScheme())

    def exists(self, path: str = "") -> bool:
        """Whether there is a file or folder."""
        return bool(self._files.exists(self._at(path)))

    def entries(self, path: str = "") -> list[Entry]:
        """What is in a folder, sorted by name; nothing in one that is not there."""
        if not self.exists(path):
            return []
        found = [
            Entry(status.getPath().getName(), status.getModificationTime() / 1000)
            for status in self._files.listStatus(self._at(path))
        ]
        return sorted(found, key=lambda entry: entry.name)

    def newest_change(self, path: str) -> float:
        """When the last file below a folder was written; 0 when there is no file."""
        newest, files = 0.0, self._files.listFiles(self._at(path), True)
        while files.hasNext():
            newest = max(newest, files.next().getModificationTime() / 1000)
        return newest

    def read(self, path: str) -> dict[str, Any]:
        """A JSON file."""
        stream = self._files.open(self._at(path))
        try:
            found: dict[str, Any] = json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return found

    def move(self, source: str, path: str, of: Files) -> None:
        """Make the folder `source` of another table this one's `path`."""
        target = self._at(path)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(of._at(source), target):
            raise OSError(f"{of._at(source)} could not be moved to {target}")

    def remove(self, path: str = "") -> None:
        """Remove a file, or a folder with all that is in it. Nothing there is fine."""
        self._files.delete(self._at(path), True)

    def create_once(self, path: str, content: Mapping[str, Any]) -> bool:
        """Make a JSON file that appears with its whole content, or not at all; False when one is there already.

        However many try at once, one of them succeeds. Raises ConfigurationError for a file system that cannot.
        """
        target = self._at(path)
        if self._files.hasPathCapability(target, _CONDITIONAL):
            return self._create(target, content, conditional=True)
        if self._scheme in _ONLY_CONDITIONAL:
            message = f"{self._folder}: this S3A client cannot write a file on condition that there is none"
            raise ConfigurationError(message, "use hadoop-aws 3.4.2 or newer; do not turn conditional creation off")
        if self._scheme in _CREATES_ONCE:
            return self._create(target, content, conditional=False)
        return self._create_aside(target, content, link=self._scheme == "file")

    def _create(self, target: Any, content: Mapping[str, Any], *, conditional: bool) -> bool:  # noqa: ANN401 - of the JVM
        try:
            if conditional:
                stream = self._files.createFile(target).must(_CONDITIONAL, "true").recursive().build()
            else:
                stream = self._files.create(target, False)
            stream.writeBytes(json.dumps(content))
            stream.close()
        except Py4JJavaError:
            return self._lost_against(target)
        return True

    def _create_aside(self, target: Any, content: Mapping[str, Any], *, link: bool) -> bool:  # noqa: ANN401
        """Write under another name, then give it its own. HDFS and its kind rename to no name that is taken; a local
        file system does, but makes no link of such a name."""
        aside = self._at(f"{PENDING}/{secrets.token_hex(8)}")
        stream = self._files.create(aside, False)
        stream.writeBytes(json.dumps(content))
        stream.close()
        self._files.mkdirs(target.getParent())
        try:
            if link:
                os.link(aside.toUri().getPath(), target.toUri().getPath())
                return True
            return bool(self._files.rename(aside, target)) or self._lost_against(target)
        except FileExistsError:
            return False
        except Py4JJavaError:
            return self._lost_against(target)
        finally:
            self._files.delete(aside, False)

    def _lost_against(self, target: Any) -> bool:  # noqa: ANN401 - of the JVM
        """False when a file could not be made because there is one: the words for that differ by file system."""
        if self._files.exists(target):
            return False
        raise OSError(f"{target} could not be written")

    def _at(self, path: str) -> Any:  # noqa: ANN401 - a Path of the JVM
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root
