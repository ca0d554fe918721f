"""Failure matrix: each strategy is subjected to each failure, and the effects of each event are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.receiving.matrix import table, wiremock
from tests.integration.receiving.matrix.case import Servers
from tests.integration.receiving.matrix.outcomes import Cell
from tests.integration.receiving.matrix.runs import AT_ONCE, CELLS, Runs, promise

PAGE = Path(__file__).resolve().parents[4] / "docs" / "receiving-matrix.md"


@pytest.fixture(scope="module")
def servers(bootstrap: str, service_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with wiremock.running(tmp_path_factory.mktemp("wiremock")) as url:
        yield Servers(bootstrap, service_dsn, url)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Runs]:
    """Start the cells of the selected tests."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = Runs(servers, pool)
        for item in request.session.items:
            if item.path == request.path and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                runs.start(item.callspec.params["cell"])
        yield runs


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_keeps_its_promise(runs: Runs, cell: Cell) -> None:
    assert runs.start(cell).result() == promise(*CELLS[cell])


def test_the_page_shows_the_outcomes(runs: Runs) -> None:
    page = PAGE.read_text(encoding="utf-8")
    actual = table.replaced(page, table.render(runs.all()))
    if os.environ.get("OUTBOX_WRITE_DOCS"):
        PAGE.write_text(actual, encoding="utf-8")
    else:
        assert page == actual, "run this test with OUTBOX_WRITE_DOCS=1 and review the difference"
