"""Define the input of lint rules, the decorators that declare rules, and the findings that rules yield."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address

from outbox_kit.connect.connector_config import ROUTER, Route, Transform, routes, transforms
from outbox_kit.kafka.state import Topic, desired_topics
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.results.checks import Finding, Rule, Severity

ID_PREFIX = "lint."
UNSET = "(not set)"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, that is, a loopback address, `localhost`, or a Unix socket's folder."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")


@dataclass(frozen=True)
class LintInput:
    """One pipeline in one environment.

    `config` is the rendered connector config. If rendering fails, `config` is empty and `error` is (message, hint). If
    a schema file is invalid, `error` is None. `label` is the path of the pipeline file, if there is one. The values of
    the keys `plain_text_secrets` in the environment file are secrets in plain text.
    """

    pipeline: Pipeline
    environment: Environment
    config: Mapping[str, str]
    label: str = ""
    plain_text_secrets: tuple[str, ...] = ()
    error: tuple[str, str] | None = None

    @cached_property
    def topics(self) -> dict[str, Topic]:
        """Topics of the desired state, by topic name."""
        return {topic.name: topic for topic in desired_topics(self.pipeline, self.environment)}

    @cached_property
    def transforms(self) -> list[Transform]:
        """Transforms of the config, in the order in which Connect runs them."""
        return transforms(self.config)

    @cached_property
    def routers(self) -> list[Transform]:
        """Every OutboxRouter among the transforms."""
        return [transform for transform in self.transforms if transform.class_name == ROUTER]

    @cached_property
    def routes(self) -> list[Route]:
        """Route of each aggregate type, as the transforms define it."""
        return routes(self.config, self.pipeline.routed)

    @property
    def is_local(self) -> bool:
        """Whether the address of every Kafka bootstrap server is a loopback address."""
        servers = self.environment.kafka.bootstrap_servers.split(",")
        return all(is_loopback(server.strip().rsplit(":", 1)[0]) for server in servers)

    def has_transform(self, class_name: str) -> bool:
        """Return whether the config has a transform of this class."""
        return any(transform.class_name == class_name for transform in self.transforms)


LintRule = Rule[Sequence[LintInput]]
InputCheck = Callable[[LintInput], Iterator[Finding]]
CrossInputCheck = Callable[[Sequence[LintInput]], Iterator[Finding]]


def violation(actual: str, expected: str, remedy: str, severity: Severity | None = None) -> Finding:
    """Return the finding for one violation of a rule. `severity` overrides the rule's severity."""
    return Finding(False, actual, expected, remedy, severity)


def mismatch(key: str, actual: str | None, expected: str | None) -> Finding:
    """Return the violation for a transform's setting. If `expected` is None or empty, the setting must not be set."""
    remedy = f"set {key} to {expected} in the template" if expected else f"remove {key} from the template"
    return violation(f"{key}={actual or UNSET}", expected or UNSET, remedy)


def suggestion(name: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return the remedy for an unknown name. It suggests the most similar candidate, if a similar one exists."""
    matches = difflib.get_close_matches(name, sorted(candidates), n=1)
    return f"did you mean {prefix}{matches[0]}?" if matches else "correct the name, or remove it"


class LintRules(list[LintRule]):
    """Rules of one module, in the order in which reports list them."""

    def cross_input_rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[CrossInputCheck], CrossInputCheck]:
        """Return a decorator that appends a rule. The decorated function yields the violations in all inputs."""

        def append_rule(check: CrossInputCheck) -> CrossInputCheck:
            def evaluate(inputs: Sequence[LintInput]) -> list[Finding]:
                return list(check(inputs)) or [Finding(True, "holds", condition)]

            self.append(Rule(ID_PREFIX + name, condition, severity, evaluate, reason=reason))
            return check

        return append_rule

    def rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[InputCheck], InputCheck]:
        """Return a decorator for a function that checks one input. With several inputs, findings begin with `label`."""

        def append_rule(check: InputCheck) -> InputCheck:
            def check_all(inputs: Sequence[LintInput]) -> Iterator[Finding]:
                for lint_input in inputs:
                    label = f"{lint_input.label}: " if len(inputs) > 1 else ""
                    for finding in check(lint_input):
                        yield replace(finding, actual=label + finding.actual)

            self.cross_input_rule(name, condition, reason=reason, severity=severity)(check_all)
            return check

        return append_rule
