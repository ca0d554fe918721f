"""docs/pipeline.md is made from the models; this holds the page against them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from outbox_kit.pipeline import reference

MODELS = [entry for _, entries in reference.PAGES for entry in entries]


def test_the_page_is_up_to_date(repository: Path) -> None:
    found = (repository / "docs" / "pipeline.md").read_text(encoding="utf-8")
    assert found == reference.page(), "run: python -m outbox_kit.pipeline.reference > docs/pipeline.md"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_every_key_is_described(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    assert model.__doc__


def test_no_default_of_a_secret_is_on_the_page() -> None:
    assert "SecretStr" not in reference.page()
