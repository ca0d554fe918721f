"""Add the transforms and the jar of the Spark jobs to the wheel, so that it needs no checkout. A hook of hatchling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGED = {
    "smt/target/plugin": "outbox_kit/plugins",
    "build/runtime/spark/jars/outbox-spark.jar": "outbox_spark/outbox-spark.jar",
}
"""Paths in the checkout, and in the wheel."""


class WheelJars(BuildHookInterface[Any]):
    """Warns about what has not been built. Skips editable installations, which use the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files that exist."""
        if version == "standard":
            for source, to in PACKAGED.items():
                if (Path(self.root) / source).exists():
                    build_data["force_include"][source] = to
                else:
                    self.app.display_warning(f"{source} does not exist, so the wheel cannot start the stack or Spark")
