"""Find the pipeline to which a topic belongs. The topics of its acknowledgements show that a pipeline exists."""

from __future__ import annotations

from collections.abc import Iterable

SUFFIX = ".dead-letter.acknowledged"


def owner_of(topic: str, existing_topics: Iterable[str]) -> str | None:
    """Return the prefix of the pipeline to which `topic` belongs; None if it belongs to no pipeline.

    Pipelines without a connector are found too. The longest prefix counts, because a prefix can begin with another one.
    """
    prefixes = (name.removesuffix(SUFFIX) for name in existing_topics if name.endswith(SUFFIX))
    return max((prefix for prefix in prefixes if topic.startswith(f"{prefix}.")), key=len, default=None)
