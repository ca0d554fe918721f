from __future__ import annotations

import pytest

from outbox_kit.errors import ConfigurationError
from outbox_kit.stack.services.catalog import NEEDS, PARTS, STOP_ORDER, needs_java, select


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        (None, ("postgres", "kafka", "registry", "connect")),
        (("postgres",), ("postgres",)),
        (("registry",), ("postgres", "registry")),
        (("connect", "postgres"), ("postgres", "kafka", "connect")),
    ],
)
def test_parts_bring_what_they_need(names: tuple[str, ...] | None, selected: tuple[str, ...]) -> None:
    assert select(names) == selected


@pytest.mark.parametrize(
    ("names", "message"), [(("zookeeper", "kafka"), "no such part: zookeeper"), ((), "no part was named")]
)
def test_selections_that_make_no_sense(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        select(names)


def test_postgresql_alone_needs_no_java() -> None:
    assert not needs_java(("postgres",))
    assert needs_java(("postgres", "kafka"))


def test_every_part_stops_before_what_it_needs() -> None:
    position = {name: index for index, names in enumerate(STOP_ORDER) for name in names}
    assert set(position) == set(PARTS)
    assert all(position[name] < position[needed] for name, all_ in NEEDS.items() for needed in all_)
