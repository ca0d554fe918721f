"""docs/ways-without-a-connector.md: the code runs verbatim."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from tests.integration.sending.producing_support import World, world

pytestmark = pytest.mark.integration
__all__ = ["world"]

GUIDE = Path(__file__).parents[3] / "docs" / "ways-without-a-connector.md"
FUNCTION, _ENCODER, *SNIPPETS = re.findall(
    r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_guide_has_snippets() -> None:
    assert len(SNIPPETS) == 5


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(world: World, number: int) -> None:
    with psycopg.connect(world.dsn) as connection:
        connection.execute("alter table purchase alter column id type uuid using id::uuid")
    names = {"dsn": world.dsn, "bootstrap_servers": world.settings["bootstrap.servers"], "topic": world.topic}
    for snippet in (FUNCTION, SNIPPETS[number]):
        # dont_inherit excludes the __future__ imports of this file.
        exec(compile(snippet, GUIDE.name, "exec", dont_inherit=True), names)  # noqa: S102
    assert world.delivered().total() == len(world.purchases()) == 1
