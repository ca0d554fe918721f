"""A choice between a fast way, which needs a class of our jar, and a plain one that always works."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError
from outbox_spark.session.class_path import has_class

AUTO = "auto"
W = TypeVar("W", bound=StrEnum)


@dataclass(frozen=True)
class Choice(Generic[W]):
    """Of a setting of Spark, or else a variable of the environment: `fast`, `plain`, or auto, which is the default."""

    setting: str
    variable: str
    fast: W
    plain: W
    needs: str
    """Class without which `fast` cannot be."""

    def made(self, spark: SparkSession) -> W:
        """The fast way where its class is, unless something else is said.

        Raises ConfigurationError when the fast one is asked for and cannot be, or what is said is none of the three.
        """
        ways = type(self.fast)
        said = spark.conf.get(self.setting, None) or os.environ.get(self.variable) or AUTO
        if said not in list(ways):
            raise ConfigurationError(f"{self.setting} ({self.variable}) is {said}", f"one of {', '.join(ways)}")
        if said == self.plain:
            return self.plain
        if has_class(spark, self.needs):
            return self.fast
        if said == self.fast:
            message = f"{self.setting} is {said}, but class {self.needs} is not on Spark's class path"
            raise ConfigurationError(message, "give spark-submit outbox-spark.jar, or set it to auto")
        return self.plain
