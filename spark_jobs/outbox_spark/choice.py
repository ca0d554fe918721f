"""A choice between a fast way, which needs something where the tasks run, and a plain one that always works."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError

AUTO = "auto"
W = TypeVar("W", bound=StrEnum)


@dataclass(frozen=True)
class Choice(Generic[W]):
    """Of a setting of Spark, or else a variable of the environment: `fast`, `plain`, or auto, which is the default."""

    setting: str
    variable: str
    fast: W
    plain: W
    lacking: str
    """What is wrong where `fast` is asked for and cannot be."""
    hint: str

    def made(self, spark: SparkSession, can: Callable[[SparkSession], bool]) -> W:
        """The fast way where it `can` be, unless something else is said; `can` is asked only when it matters.

        Raises ConfigurationError when the fast one is asked for and cannot be, or what is said is none of the three.
        """
        ways = type(self.fast)
        said = spark.conf.get(self.setting, None) or os.environ.get(self.variable) or AUTO
        if said not in list(ways):
            raise ConfigurationError(f"{self.setting} ({self.variable}) is {said}", f"one of {', '.join(ways)}")
        if said == self.plain:
            return self.plain
        if can(spark):
            return self.fast
        if said == self.fast:
            raise ConfigurationError(f"{self.setting} is {said}, but {self.lacking}", self.hint)
        return self.plain
