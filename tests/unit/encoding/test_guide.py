"""docs/ways-without-a-connector.md: the encoder example runs verbatim."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from uuid import uuid4

import fastavro

from outbox_events.kafka.record import Record
from outbox_kit.pipeline import Lock, LockedSchema, load_pipeline, write_lock

PROJECT = Path(__file__).parents[3]
GUIDE = PROJECT / "docs" / "ways-without-a-connector.md"
PIPELINE = PROJECT / "connectors" / "library.yaml"


def write_lock_of_the_example(path: Path) -> dict[str, str]:
    """Write a lock file with one schema of each aggregate type. Return the texts of the schemas."""
    files = {name: aggregate.schema_file for name, aggregate in load_pipeline(PIPELINE).routed.items()}
    texts = {name: Path(file).read_text(encoding="utf-8") for name, file in files.items() if file}
    schemas = {
        name: [LockedSchema(subject=f"library.{name}-value", version=1, id=7, fingerprint="", text=text)]
        for name, text in texts.items()
    }
    write_lock(path, Lock(pipeline="library", environment="local", schemas=schemas))
    return texts


def test_encodes_records_of_the_contract(tmp_path: Path) -> None:
    lock_file = tmp_path / "library.local.lock.json"
    texts = write_lock_of_the_example(lock_file)
    [snippet] = re.findall(r"^```python\n((?:(?!^```).)*RecordEncoder\(.*?)^```", GUIDE.read_text(), re.M | re.S)
    names = {"pipeline_file": PIPELINE, "lock_file": lock_file}
    exec(compile(snippet, GUIDE.name, "exec", dont_inherit=True), names)  # noqa: S102
    author = {"id": str(uuid4()), "name": "Ursula", "updated_at": "2026-11-20T18:31:38.123456+00:00"}
    record = names["author_record"](author, 3)  # type: ignore[operator]
    assert isinstance(record, Record)
    assert (record.topic, record.key) == ("library.author", author["id"].encode())
    assert record.value is not None
    assert record.value[:5] == b"\0" + (7).to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(texts["author"]))
    assert fastavro.schemaless_reader(io.BytesIO(record.value[5:]), schema)["name"] == "Ursula"
