"""Choice between a fast implementation in a class of our jar and a plain one that is always available."""

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
class JarFallback(Generic[W]):
    """A Spark setting, or else an environment variable, with the values `fast`, `plain` and auto, the default."""

    setting: str
    variable: str
    fast: W
    plain: W
    required_class: str
    """Class that `fast` needs."""

    def choose(self, spark: SparkSession) -> W:
        """Return the setting's value; for auto `fast` if its class is available, else `plain`.

        Raises ConfigurationError for another value, and for `fast` without its class.
        """
        values = type(self.fast)
        value = spark.conf.get(self.setting, None) or os.environ.get(self.variable) or AUTO
        if value not in list(values):
            raise ConfigurationError(f"{self.setting} ({self.variable}) is {value}", f"set one of {', '.join(values)}")
        if value == self.plain:
            return self.plain
        if has_class(spark, self.required_class):
            return self.fast
        if value == self.fast:
            message = f"{self.setting} is {value}, but class {self.required_class} is not on Spark's class path"
            raise ConfigurationError(message, "add outbox-spark.jar to spark-submit, or set it to auto")
        return self.plain
