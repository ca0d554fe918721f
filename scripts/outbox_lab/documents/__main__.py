"""Generate the references in docs/ and the JSON Schemas in connectors/: `python -m outbox_lab.documents [FOLDER]`.

In each page, only the text below MARKER is generated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from outbox_lab.documents.check_reference import checks, rules
from outbox_lab.documents.command_reference import commands
from outbox_lab.documents.pipeline_reference import environment_schema, pipeline_schema, reference

MARKER = "<!-- Generated from here on by `python -m outbox_lab.documents`; a test compares it with the code. -->\n"
PAGES = {"docs/cli.md": commands, "docs/lint.md": rules, "docs/pipeline.md": reference, "docs/verify.md": checks}


def files(folder: Path) -> dict[str, str]:
    """Return a mapping from the path of each generated file to its content."""
    return {
        **{name: f"{_introduction(folder / name)}{MARKER}\n{generate()}" for name, generate in PAGES.items()},
        "connectors/pipeline.schema.json": _json_document(pipeline_schema()),
        "connectors/environment.schema.json": _json_document(environment_schema()),
    }


def _introduction(page: Path) -> str:
    introduction, marker, _ = page.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise ValueError(f"{page} does not contain {MARKER!r}")
    return introduction


def _json_document(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    folder = Path(*sys.argv[1:2])
    for name, text in files(folder).items():
        (folder / name).write_text(text, encoding="utf-8")
