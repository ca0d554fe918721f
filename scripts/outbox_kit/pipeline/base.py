"""What the models of the files are made of: their base, and names as PostgreSQL and Kafka allow them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
QualifiedTable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*\.[A-Za-z_]\w*$", max_length=127)]
# Kafka allows these in topic names; a slot or a subject made of them is legal too.
TopicPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]
# PostgreSQL: "Slot names may only contain lower case letters, numbers, and the underscore character".
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=63)]
# An item of a list of the connector config, where a comma ends it and white space around it is lost.
EventType = Annotated[str, StringConstraints(pattern=r"^[^\s,]([^,]*[^\s,])?$", max_length=255)]


class Model(BaseModel):
    """Base of all models of the files: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
