"""Rendering: golden configs, settings that the guarantees require, and errors of invalid templates.

Update the golden file with `UPDATE_GOLDEN=1 pytest tests/unit/pipeline/test_render.py`, and review its diff.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import jinja2
import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import UNKNOWN, Environment, Lock, Pipeline, render_connector
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.pipeline.model import Connector
from outbox_kit.pipeline.render import packaged_templates

# Pattern of Connect's placeholders (ConfigTransformer.DEFAULT_PATTERN).
PLACEHOLDER = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


@pytest.fixture
def templates(repository: Path) -> Path:
    return repository / "connectors" / "templates"


@pytest.fixture
def config(library: Pipeline, environment: Environment, lock: Lock, templates: Path) -> dict[str, str]:
    return render_connector(library, environment, lock, templates)


def with_connector(pipeline: Pipeline, **changes: object) -> Pipeline:
    connector = Connector.model_validate({**pipeline.connector.model_dump(), **changes})
    return pipeline.model_copy(update={"connector": connector})


def with_messages(pipeline: Pipeline) -> Pipeline:
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"message_prefix": "outbox"})})


GOLDEN = {
    "outbox-postgres": "library-connector.json",
    "outbox-postgres-eventrouter": "library-connector-eventrouter.json",
    "outbox-postgres-chain": "library-chain-connector.json",
    "outbox-postgres-messages": "library-messages-connector.json",
}


@pytest.mark.parametrize("template", GOLDEN)
def test_golden(
    template: str, library: Pipeline, environment: Environment, lock: Lock, templates: Path, repository: Path
) -> None:
    path = repository / "tests" / "golden" / GOLDEN[template]
    pipeline = with_messages(library) if template == "outbox-postgres-messages" else library
    config = render_connector(with_connector(pipeline, template=template), environment, lock, templates)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    golden = json.loads(path.read_text(encoding="utf-8"))
    assert config == golden, "if intended, run with UPDATE_GOLDEN=1 and review the diff of tests/golden"


def test_values_are_strings_and_keys_are_sorted(config: dict[str, str]) -> None:
    assert {type(value) for value in config.values()} == {str}
    assert list(config) == sorted(config)


def test_rendering_is_deterministic(
    config: dict[str, str], library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    assert list(render_connector(library, environment, lock, templates).items()) == list(config.items())


ROUTER = "transforms.outbox."
REQUIRED = [
    (
        "connector.class",
        "io.debezium.connector.postgresql.PostgresConnector",
        "the other settings are for this connector",
    ),
    ("tasks.max", "1", "one slot is read by one task"),
    ("plugin.name", "pgoutput", "the slot is created with it"),
    ("snapshot.mode", "no_data", "a snapshot would restore old states"),
    ("publication.autocreate.mode", "disabled", "a publication created after the slot loses rows"),
    ("publication.name", "library_outbox", "apply creates it"),
    ("slot.name", "library_outbox", "apply creates it"),
    ("slot.drop.on.stop", "false", "rows written after the drop would be lost"),
    ("table.include.list", "public.outbox_event", "the router rejects rows of other tables"),
    ("offset.mismatch.strategy", "no_validation", "other values lose rows without an error"),
    ("lsn.flush.mode", "connector", "other values lose rows without an error"),
    ("heartbeat.interval.ms", "10000", "without heartbeats the slot retains the WAL of other tables"),
    (
        "heartbeat.action.query",
        "select pg_logical_emit_message(false, 'outbox-heartbeat', '')",
        "advances the slot without a table",
    ),
    ("message.prefix.exclude.list", ".*", "no logical message is captured"),
    ("producer.override.max.block.ms", "60000", "a missing topic would block the task in state RUNNING"),
    ("exactly.once.support", "required", "a worker without support is rejected"),
    ("errors.tolerance", "none", "`all` acknowledges records that were not sent"),
    ("tombstones.on.delete", "false", "the router creates the tombstones"),
    ("provide.transaction.metadata", "false", "the topic exists only if it is requested"),
    ("extended.headers.enabled", "false", "not part of the record contract"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter", "keys are plain UTF-8"),
    ("header.converter", "org.apache.kafka.connect.storage.StringConverter", "digits remain text"),
    (
        "value.converter",
        "io.debezium.converters.BinaryDataConverter",
        "ByteArrayConverter fails for heartbeats",
    ),
    (
        "value.converter.delegate.converter.type",
        "org.apache.kafka.connect.json.JsonConverter",
        "heartbeats are Structs",
    ),
    ("value.converter.delegate.converter.type.schemas.enable", "false", "heartbeats contain no schema"),
    ("transforms", "outbox", "one transform"),
    (ROUTER + "type", "io.outboxkit.smt.OutboxRouter", "the router"),
    (ROUTER + "snapshot.rows", "fail", "snapshot rows would restore old states"),
    (ROUTER + "invalid.rows", "dead-letter", "invalid rows become dead letters"),
    (ROUTER + "dead.letter.topic", "library.dead-letter", "invalid rows become dead letters"),
    (ROUTER + "max.record.bytes", "1000000", "with exactly-once a record that is too large fails at the commit only"),
    (ROUTER + "source.epoch", "2", "the epoch of the lock file"),
    (ROUTER + "table", "public.outbox_event", "records of other tables are rejected"),
    (ROUTER + "aggregates", "author,book,outbox-canary", "an unknown type is a dead letter"),
    (ROUTER + "aggregate.book.partitions", "4", "the count of the pipeline file"),
    (ROUTER + "aggregate.author.schema.versions", "2,1", "rows of version 1 may wait in the WAL"),
    (ROUTER + "aggregate.author.schema.2.id", "12", "every record contains the registry's id"),
    (ROUTER + "aggregate.author.schema.1.id", "3", "every record contains the registry's id"),
]


@pytest.mark.parametrize(("key", "value", "reason"), REQUIRED, ids=[key for key, _, _ in REQUIRED])
def test_settings_required_by_the_guarantees(config: dict[str, str], key: str, value: str, reason: str) -> None:
    assert config.get(key) == value, reason


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("publish.via.partition.root", "has no effect if the publication exists"),
        ("slot.failover", "has no effect if the slot exists"),
        ("skipped.operations", "the publication selects the operations"),
        ("snapshot.select.statement.overrides", "there is no snapshot"),
        ("message.prefix.include.list", "cannot be combined with the exclude list"),
        ("errors.deadletterqueue.topic.name", "for sink connectors only"),
        ("errors.log.include.messages", "would log payloads"),
        ("name", "Connect adds it to the config"),
        (ROUTER + "pass.through", "only with transaction metadata"),
    ],
)
def test_omits_forbidden_settings(config: dict[str, str], key: str, reason: str) -> None:
    assert key not in config, reason


def test_producer_and_topics_accept_the_largest_record(
    config: dict[str, str], library: Pipeline, environment: Environment
) -> None:
    largest = int(config[ROUTER + "max.record.bytes"])
    request = int(config["producer.override.max.request.size"])
    assert largest < request
    for topic in desired_topics(library, environment):
        assert int(topic.config["max.message.bytes"]) >= request, topic.name


def test_creates_every_routed_topic(config: dict[str, str], library: Pipeline, environment: Environment) -> None:
    routed = {value for key, value in config.items() if re.fullmatch(r"transforms\.outbox\..*topic", key)}
    created = {topic.name: topic.partitions for topic in desired_topics(library, environment)}
    assert routed <= created.keys()
    for name in library.routed:
        assert config[f"{ROUTER}aggregate.{name}.partitions"] == str(created[library.topic_of(name)])


def test_worker_has_its_own_database_address(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    login = environment.source.connector.model_copy(update={"host": "db.inside", "port": 5432})
    source = environment.source.model_copy(update={"connector": login})
    inside = environment.model_copy(update={"source": source})
    config = render_connector(library, inside, lock, templates)
    assert (config["database.hostname"], config["database.port"]) == ("db.inside", "5432")


def test_worker_uses_the_address_of_the_tool_by_default(config: dict[str, str]) -> None:
    assert (config["database.hostname"], config["database.port"]) == ("db.example.internal", "5433")


def test_keeps_placeholders_and_omits_the_admin_login(config: dict[str, str]) -> None:
    assert config["database.password"] == "${file:/secrets/db.properties:library.password}"
    assert config["database.user"] == "reader"
    assert "owner-secret" not in json.dumps(config)
    assert [key for key, value in config.items() if PLACEHOLDER.search(value)] == ["database.password"]


def test_renders_transaction_metadata(library: Pipeline, environment: Environment, lock: Lock, templates: Path) -> None:
    changed = with_connector(library, transaction_metadata=True)
    config = render_connector(changed, environment, lock, templates)
    assert config["provide.transaction.metadata"] == "true"
    assert config[ROUTER + "pass.through"] == "transactions"


def test_renders_a_partition_field(library: Pipeline, environment: Environment, lock: Lock, templates: Path) -> None:
    book = library.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    pipeline = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    config = render_connector(pipeline, environment, lock, templates)
    assert config[ROUTER + "aggregate.book.partition.field"] == "tenant"
    assert ROUTER + "aggregate.author.partition.field" not in config


def test_overrides_take_precedence(library: Pipeline, environment: Environment, lock: Lock, templates: Path) -> None:
    overrides = {"max.batch.size": "7", "snapshot.fetch.size": "10", "database.password": "${dir:/x:y}"}
    changed = with_connector(library, overrides=overrides)
    config = render_connector(changed, environment, lock, templates)
    assert overrides.items() <= config.items()
    assert list(config) == sorted(config)


def test_ids_are_unknown_before_the_first_apply(library: Pipeline, environment: Environment, templates: Path) -> None:
    config = render_connector(library, environment, None, templates)
    unknown = {key for key, value in config.items() if value == UNKNOWN}
    assert unknown == {f"{ROUTER}aggregate.{name}.schema.1.id" for name in library.routed}
    assert config[ROUTER + "source.epoch"] == "1"


def test_new_aggregate_is_unknown_among_locked_ones(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    partial = lock.model_copy(update={"schemas": {"author": lock.schemas["author"]}})
    config = render_connector(library, environment, partial, templates)
    assert config[ROUTER + "aggregate.author.schema.2.id"] == "12"
    assert config[ROUTER + "aggregate.book.schema.1.id"] == UNKNOWN


def test_schemas_are_the_locked_texts_without_docs(config: dict[str, str], lock: Lock) -> None:
    for name, entries in lock.schemas.items():
        for entry in entries:
            text = config[f"{ROUTER}aggregate.{name}.schema.{entry.version}"]
            assert json.loads(text) == json.loads(without_docs(entry.text))
            assert '"doc"' not in text


@pytest.mark.parametrize(
    "default",
    [
        "${env:HOME}",
        "${file:/etc/passwd:root}",
        "a ${b:c} d ${e:f:g}",
        "$${env:X}",
        "\\${env:X}",
        "<b>&'\"ä✓ {{ x }}",
    ],
)
def test_escapes_placeholders_in_schema_texts(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path, default: str
) -> None:
    schema = {"type": "record", "name": "B", "fields": [{"name": "x", "type": "string", "default": default}]}
    entry = lock.schemas["book"][0].model_copy(update={"text": json.dumps(schema)})
    changed = lock.model_copy(update={"schemas": {**lock.schemas, "book": [entry]}})
    text = render_connector(library, environment, changed, templates)[ROUTER + "aggregate.book.schema.1"]
    assert not PLACEHOLDER.search(text)
    assert "${" not in text
    assert json.loads(text) == schema


@pytest.mark.parametrize("value", ["it's", '"quoted"', "<b>&", "ä", "a\\b", "{{ 1 }}", "100%"])
def test_renders_values_of_the_environment_unchanged(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path, value: str
) -> None:
    source = environment.source.model_copy(update={"database": value})
    config = render_connector(library, environment.model_copy(update={"source": source}), lock, templates)
    assert config["database.dbname"] == value


def test_reports_a_missing_template_with_the_existing_ones(
    library: Pipeline, environment: Environment, templates: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        render_connector(with_connector(library, template="nope"), environment, None, templates)
    assert caught.value.message == f"no template {templates}/nope.json.j2"
    assert re.match(r"use one of the templates .*\boutbox-postgres\b", caught.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "b",}', r"does not render to JSON: .* in '\{\"a\": \"b\",\}'"),
        ('{\n"a": {{ pipeline.name }}\n}', "does not render to JSON: Expecting value in '\"a\": library'"),
        ('{"a": {{ nope | tojson }}}', "'nope' is undefined"),
        ('{"a": {{ settings.nope | tojson }}}', "nope"),
        ('{"a": {% if %}}', "Expected an expression"),
        ('{"a": {{ 1 | nope }}}', "No filter named 'nope'"),
        ('{"a": {{ 1 / 0 }}}', "division by zero"),
        ('{"a": {{ range(1000000) | list }}}', "Range too big"),
        ('{"a": {{ 1 | dictsort }}}', "no attribute 'items'"),
        ('{% include "' + "a" * 300 + '" %}', "File name too long"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ('{"a": {{ environment.source.admin.password | tojson }}}', "template"),
        ("", "does not render to JSON"),
        ("{\n\n", "does not render to JSON"),
        ('["a"]', "does not render to JSON|object"),
        ('"a"', "does not render to JSON|object"),
    ],
)
def test_reports_an_invalid_template(
    library: Pipeline, environment: Environment, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "bad.json.j2").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message) as caught:
        render_connector(with_connector(library, template="bad"), environment, None, tmp_path)
    assert str(tmp_path / "bad.json.j2") in caught.value.message
    assert "owner-secret" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {{ ("a" * 10000000000) | length }}}',
        '{"a": {{ 9 ** 9 ** 9 }}}',
        '{"a": {{ "%10000000000d" % 1 }}}',
        '{"a": {{ "a" | center(10000000000) | length }}}',
        '{"a": {{ ["a"] | map("center", 10000000000) | list }}}',
        '{"a": {{ ("%10000000000d" | format(1)) | length }}}',
        '{"a": {{ "a".center(10000000000) | length }}}',
        '{"a": {{ "{:10000000000}".format(1) | length }}}',
        '{"a": {{ (1).to_bytes(10000000000) | length }}}',
        '{"a": {{ lipsum(1000000) }}}',
        "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9) %}{% endfor %}" + "{% endfor %}" * 2,
        "{% for i in [1, 1] recursive %}{{ loop([1, 1]) if loop.depth < 60 }}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        '{% set n = (n | d("")) ~ "a" %}{% if n | length < 60 %}'
        + '{% include "hostile.json.j2" %}' * 2
        + "{% endif %}",
        '{% set ns = namespace(x="a") %}{% for i in range(50) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}',
        '{% set ns = namespace(x=["a"]) %}{% for i in range(50) %}{% set ns.x = ns.x + ns.x %}{% endfor %}',
        "{% set ns = namespace(x=9) %}{% for i in range(50) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{% set n = namespace(x=9) %}{% for i in range(50) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
        "{#" + " " * 500_000 + "#}",
    ],
)
def test_limits_time_and_memory_of_a_template(
    library: Pipeline, environment: Environment, tmp_path: Path, text: str
) -> None:
    (tmp_path / "hostile.json.j2").write_text(text, encoding="utf-8")
    limits = r"exceeds|more than|larger than|operator|No filter|unsafe|undefined"
    for _ in ("compiled", "compiled before"):
        with pytest.raises(ConfigurationError, match=limits):
            render_connector(with_connector(library, template="hostile"), environment, None, tmp_path)


def test_compiles_a_template_once(
    library: Pipeline, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.json.j2").write_text("{}", encoding="utf-8")
    empty = with_connector(library, template="empty")
    assert render_connector(empty, environment, None, tmp_path) == {}
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *_: pytest.fail("compiled again"))
    assert render_connector(empty, environment, None, tmp_path) == {}


def test_reads_no_file_outside_of_the_templates(library: Pipeline, environment: Environment, tmp_path: Path) -> None:
    templates, outside = tmp_path / "templates", tmp_path / "outside"
    templates.mkdir()
    outside.write_text('{"a": "outside"}')
    (templates / "link.json.j2").symlink_to(outside)
    (templates / "included.json.j2").write_text('{% include "link.json.j2" %}')
    (templates / "inside.json.j2").write_text('{"a": "inside"}')
    (templates / "alias.json.j2").symlink_to(templates / "inside.json.j2")
    assert render_connector(with_connector(library, template="alias"), environment, None, templates) == {"a": "inside"}
    for name in ("link", "included"):
        with pytest.raises(ConfigurationError, match="no template"):
            render_connector(with_connector(library, template=name), environment, None, templates)


def test_a_changed_copy_of_a_template_is_used(library: Pipeline, environment: Environment, tmp_path: Path) -> None:
    """A change is also used after a rendering, and in the parent of a template that did not change."""
    copies = tmp_path / "templates"
    shutil.copytree(packaged_templates(), copies)
    expected = render_connector(library, environment, None, packaged_templates())
    assert render_connector(library, environment, None, copies) == expected
    path = copies / "outbox-postgres.json.j2"
    path.write_text(path.read_text().replace('"tasks.max": "1"', '"tasks.max": "7"'))
    child = with_connector(library, template="outbox-postgres-eventrouter")
    assert render_connector(library, environment, None, copies)["tasks.max"] == "7"
    assert render_connector(child, environment, None, copies)["tasks.max"] == "7"


@pytest.mark.parametrize(
    "expression",
    [
        "cycler.__init__.__globals__.os.system('touch MARKER')",
        "''.__class__.__base__.__subclasses__()",
        "refuse.__globals__",
        # Methods of pydantic's models and of paths.
        "pipeline.parse_file('MARKER', content_type='pickle', allow_pickle=True)",
        "pipeline.aggregates.book.schema_file.write_text('x')",
        "pipeline.aggregates.clear()",
        # Credentials of outbox-kit.
        "environment.source.admin.password.get_secret_value()",
        "environment.source.verifier.password.get_secret_value()",
        "environment.kafka.client['sasl.password']",
        "environment.registry.password.get_secret_value()",
        "environment.connect.token.get_secret_value()",
        "environment.targets.warehouse.password.get_secret_value()",
    ],
)
def test_templates_execute_nothing_and_read_no_credentials(
    library: Pipeline, environment: Environment, tmp_path: Path, expression: str
) -> None:
    text = expression.replace("MARKER", str(tmp_path / "marker"))
    (tmp_path / "hostile.json.j2").write_text(f'{{"a": {{{{ {text} | string | tojson }}}}}}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="template"):
        render_connector(with_connector(library, template="hostile"), with_secrets(environment), None, tmp_path)
    assert not (tmp_path / "marker").exists()


def test_values_for_templates_contain_no_credentials(
    library: Pipeline, environment: Environment, tmp_path: Path
) -> None:
    values = '{"environment": {{ environment | tojson }}, "pipeline": {{ pipeline | tojson }}}'
    (tmp_path / "all.json.j2").write_text(values, encoding="utf-8")
    config = render_connector(with_connector(library, template="all"), with_secrets(environment), None, tmp_path)
    assert environment.source.host in config["environment"]
    assert "secret-of-" not in str(config)


def with_secrets(environment: Environment) -> Environment:
    """Return the environment with a credential in every place where outbox-kit reads one."""
    data = environment.model_dump()
    data["source"]["admin"]["password"] = "secret-of-admin"
    data["source"]["verifier"] = {"user": "verifier", "password": "secret-of-verifier"}
    data["kafka"]["client"] = {"sasl.password": "secret-of-kafka"}
    data["registry"] |= {"username": "u", "password": "secret-of-registry"}
    data["connect"] |= {"token": "secret-of-connect"}
    warehouse = {"host": "h", "database": "d", "user": "u", "password": "secret-of-warehouse"}
    data["targets"] = {"warehouse": {"kind": "postgres", **warehouse}}
    return Environment.model_validate(data)


def test_converts_values_to_json(library: Pipeline, environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "odd.json.j2").write_text('{"b": 1, "a": true, "c": null, "d": "1"}', encoding="utf-8")
    config = render_connector(with_connector(library, template="odd"), environment, None, tmp_path)
    assert config == {"a": "true", "b": "1", "c": "null", "d": "1"}


def test_rejects_messages_without_a_prefix(library: Pipeline, environment: Environment, templates: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source\.message_prefix is not set"):
        render_connector(with_connector(library, template="outbox-postgres-messages"), environment, None, templates)
