"""Load pipeline and environment files, and apply their overrides.

Precedence, lowest first: pipeline file, `pipeline:` in the environment file, `--set`, environment variables. Error
messages contain the location, the key, the value and the allowed values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline.environment import (
    REMOVED_TARGET_KINDS,
    Connect,
    DeltaTarget,
    Environment,
    HttpService,
    IcebergTarget,
    Kafka,
    PostgresTarget,
    Registry,
    SourceDatabase,
    Target,
)
from outbox_kit.pipeline.expressions import Expansion
from outbox_kit.pipeline.model import Aggregate, Pipeline
from outbox_kit.pipeline.overrides import Overrides
from outbox_kit.pipeline.validation_errors import failure, validation_problems
from outbox_kit.pipeline.values_with_origins import Values, read_mapping

SECTIONS = ("source", "kafka", "registry", "connect", "targets")
OVERLAY = "pipeline"
PROTECTED = "protected"
EXAMPLE_SUFFIX = ".example"  # users copy NAME.example.yaml to NAME.yaml
SYSTEM_CA = "probe"  # not a path: with this ssl.ca.location, librdkafka uses the CA certificates of the system
SSL_ROOT_CERT = "sslrootcert"
TLS_FILES = ("ca_file", "certificate_file", "key_file")


def project_folder(pipeline_file: Path) -> Path:
    """Return the folder to which paths are relative: the parent of the pipeline file's folder `connectors/`."""
    return pipeline_file.resolve().parent.parent


def load_files(
    pipeline_file: Path, environment: str, overrides: Overrides | None = None, *, needs: Collection[str] = SECTIONS
) -> tuple[Pipeline, Environment]:
    """Load a pipeline file and an environment file. See load_environment for `needs` and the raised errors."""
    pipeline = load_pipeline(pipeline_file, environment, overrides)
    return pipeline, load_environment(environment, pipeline_file, overrides, needs=needs)


def load_pipeline(path: Path, environment: str | None = None, overrides: Overrides | None = None) -> Pipeline:
    """Load a pipeline file with the overrides of `environment`, and with absolute paths. Raises ConfigurationError."""
    overrides = overrides or Overrides()
    values = read_mapping(path)
    if environment is not None:
        values = values.merged(environment_values(environment, path, overrides).section(OVERLAY))
    overrides.apply_to(Pipeline, values, of_environment=False)
    try:
        pipeline = Pipeline.model_validate(values.data)
    except ValidationError as error:
        raise failure(validation_problems(Pipeline, values, error)) from None
    project = project_folder(path)
    aggregates = {name: _resolve_schema_files(entry, project) for name, entry in pipeline.aggregates.items()}
    return pipeline.model_copy(update={"aggregates": aggregates})


def load_environment(
    name: str, pipeline_file: Path, overrides: Overrides | None = None, *, needs: Collection[str] = SECTIONS
) -> Environment:
    """Load environments/NAME.yaml from the folder of the pipeline file, with expressions expanded.

    `needs` contains the keys, such as `source.host`, whose variables must be set. A user who schedules Spark jobs, for
    example, does not need the database owner's password. Raises ConfigurationError if a needed variable is not set, the
    stack is not running, a key is invalid, or a certificate is missing.
    """
    overrides = overrides or Overrides()
    project = project_folder(pipeline_file)
    values = environment_values(name, pipeline_file, overrides)
    env_file = values.data.get("env_file")
    file = project / env_file if isinstance(env_file, str) else None
    expansion = Expansion(values, project, overrides, OPTIONAL_SECTIONS, needs, file)
    expanded = {key: value if key == OVERLAY else _expand_section(key, expansion) for key, value in values.data.items()}
    expansion.raise_missing()
    _reject_removed_targets(expanded.get("targets"), values)
    try:
        environment = Environment.model_validate(expanded)
    except ValidationError as error:
        raise failure(validation_problems(Environment, values, error)) from None
    return resolve_paths(environment, values, project, needs)


def _reject_removed_targets(targets: object, values: Values) -> None:
    for name, target in targets.items() if isinstance(targets, dict) else ():
        kind = target.get("kind") if isinstance(target, dict) else None
        if kind in REMOVED_TARGET_KINDS:
            origin = values.origin(("targets", name, "kind"))
            message = f"{origin}: targets.{name}.kind: the target kind {kind!r} was removed"
            raise ConfigurationError(message, REMOVED_TARGET_KINDS[kind])


def environment_values(name: str, pipeline_file: Path, overrides: Overrides) -> Values:
    """Return the environment file's values, unexpanded and with overrides applied. Raises ConfigurationError."""
    folder = pipeline_file.resolve().parent / "environments"
    path = folder / f"{name}.yaml"
    if not path.exists():
        names = ", ".join(sorted(entry.stem for entry in folder.glob("*.yaml")))
        hint = f"choose one of: {names}" if names else "create the file"
        raise ConfigurationError(f"environment {name!r}: no file {path}", hint)
    values = read_mapping(path)
    in_file = values.data.get(PROTECTED, False)
    overrides.apply_to(Environment, values, of_environment=True)
    _require_name_of_file(name, values)
    if in_file is not False and values.data.get(PROTECTED) not in (in_file, True):
        problem = f"{values.origin((PROTECTED,))}: {PROTECTED}: true in {path} cannot be overridden"
        raise failure([problem], f"remove the override, or set `protected: false` in {path.name}")
    return values


def _require_name_of_file(file_name: str, values: Values) -> None:
    """Raise ConfigurationError if `name` differs from the file's name, because `name` selects the lock file."""
    name, expected = values.data.get("name"), file_name.removesuffix(EXAMPLE_SUFFIX)
    if isinstance(name, str) and name != expected:
        problem = f"{values.origin(('name',))}: name: found {name!r}; must be {expected!r}, the name of the file"
        raise failure([problem], f"set `name` to {expected}, or rename the file to {name}.yaml and add -e {name}")


def _resolve_schema_files(aggregate: Aggregate, project: Path) -> Aggregate:
    references = [project / path for path in aggregate.references]
    schema = project / aggregate.schema_file if aggregate.schema_file is not None else None
    return aggregate.model_copy(update={"schema_file": schema, "references": references})


def resolve_paths(environment: Environment, values: Values, project: Path, needs: Collection[str]) -> Environment:
    """Make relative paths absolute. Raises ConfigurationError if a needed section names a missing certificate file."""
    needed_sections = {need.split(".")[0] for need in needs}
    services: dict[str, HttpService] = {"registry": environment.registry, "connect": environment.connect}
    tls_files: dict[str, dict[str, Path]] = {}
    problems = []
    for section, service in services.items():
        tls_files[section] = {key: project / path for key in TLS_FILES if (path := getattr(service, key)) is not None}
        problems += [
            f"{values.origin((section, key))}: {section}.{key}: no file {path}"
            for key, path in tls_files[section].items()
            if section in needed_sections and not path.is_file()
        ]
    source = environment.source
    ca_file = getattr(source, SSL_ROOT_CERT, None)
    if ca_file is not None and not (project / ca_file).is_file() and "source" in needed_sections:
        location = ("source", SSL_ROOT_CERT)
        problems.append(f"{values.origin(location)}: source.sslrootcert: no file {project / ca_file}")
    if problems:
        raise failure(problems, f"create the file, or correct the path; relative paths start at {project}")
    changes: dict[str, object] = {
        section: service.model_copy(update=tls_files[section]) for section, service in services.items()
    }
    client = environment.kafka.client
    client_files = {
        key: str(project / value) for key, value in client.items() if key.endswith(".location") and value != SYSTEM_CA
    }
    changes |= {
        "kafka": environment.kafka.model_copy(update={"client": {**client, **client_files}}),
        "source": source if ca_file is None else source.model_copy(update={SSL_ROOT_CERT: project / ca_file}),
        "targets": {key: _resolve_target_paths(target, project) for key, target in environment.targets.items()},
        "lock_folder": project / environment.lock_folder,
    }
    return environment.model_copy(update=changes)


def _resolve_target_paths(target: Any, project: Path) -> Any:  # noqa: ANN401 - returns the same member of Target
    if isinstance(target, DeltaTarget) and "://" not in target.path:
        return target.model_copy(update={"path": str(project / target.path)})
    if isinstance(target, PostgresTarget) and target.sslrootcert is not None:
        return target.model_copy(update={SSL_ROOT_CERT: project / target.sslrootcert})
    if isinstance(target, IcebergTarget) and "://" not in (folder := target.catalog.get("warehouse", "://")):
        return target.model_copy(update={"catalog": {**target.catalog, "warehouse": str(project / folder)}})
    return target


# Type of each optional section, and a factory for the empty section that replaces it if unneeded variables are unset.
OPTIONAL_SECTIONS: dict[str, tuple[TypeAdapter[Any], Callable[[], object]]] = {
    "source": (TypeAdapter(SourceDatabase), SourceDatabase.model_construct),
    "kafka": (TypeAdapter(Kafka), Kafka.model_construct),
    "registry": (TypeAdapter(Registry), Registry.model_construct),
    "connect": (TypeAdapter(Connect), Connect.model_construct),
    "targets": (TypeAdapter(dict[str, Target]), dict),
}


def _expand_section(key: str, expansion: Expansion) -> object:
    """Return one expanded top-level section, or an empty section if it uses unset variables and is not needed."""
    expanded = expansion.expand(key)
    if key not in OPTIONAL_SECTIONS or any(need.split(".")[0] == key for need in expansion.needed_keys):
        return expanded
    adapter, empty_value = OPTIONAL_SECTIONS[key]
    try:
        return adapter.validate_python(expanded)
    except ValidationError:
        # If all variables are set, the section itself is invalid, and the validation of the file reports the error.
        return empty_value() if key in expansion.unset_sections else expanded
