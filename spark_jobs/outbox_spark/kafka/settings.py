"""Translate librdkafka settings, which the driver uses, to settings of the Java consumer, which Spark uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_events.errors import ConfigurationError

# Settings that have the same name and values in both clients.
_SHARED_NAMES = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.kerberos.service.name",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
# Settings that _sasl and _tls translate.
_TRANSLATED_NAMES = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def require_supported(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a setting without a counterpart in Java. Some of these settings load libraries."""
    unknown_names = sorted(set(settings) - _SHARED_NAMES - _TRANSLATED_NAMES)
    if unknown_names:
        message = f"kafka.client has settings that Spark's Kafka reader does not support: {', '.join(unknown_names)}"
        allowed = ", ".join(sorted(_SHARED_NAMES | _TRANSLATED_NAMES))
        raise ConfigurationError(message, f"use only these settings in kafka.client: {allowed}")


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the Java consumer that are equivalent to the librdkafka `settings`.

    Certificates become inline PEM, so that executors do not need files from the driver. Raises ConfigurationError for a
    setting without a known counterpart, because omitting the setting could select another cluster or weaken security.
    """
    require_supported(settings)
    shared = {name: value for name, value in settings.items() if name in _SHARED_NAMES}
    return {**shared, **_sasl(settings), **_tls(settings)}


def _sasl(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    translated = {"sasl.mechanism": mechanism}
    if "sasl.username" in settings:
        module = _LOGIN_MODULES.get(mechanism)
        if module is None:
            message = f"kafka.client: sasl.mechanism {mechanism!r} does not support sasl.username"
            raise ConfigurationError(message, f"set sasl.mechanism to one of: {', '.join(sorted(_LOGIN_MODULES))}")
        login = f"username={_quoted(settings['sasl.username'])} password={_quoted(settings.get('sasl.password', ''))}"
        translated["sasl.jaas.config"] = f"{module} required {login};"
    return translated


def _tls(settings: Mapping[str, str]) -> dict[str, str]:
    translated: dict[str, str] = {}
    ca_certificate = _pem(settings, "ssl.ca")
    if ca_certificate:
        translated |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca_certificate}
    certificate = _pem(settings, "ssl.certificate")
    key = _pem(settings, "ssl.key")
    if certificate and key:
        translated |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
    if "ssl.key.password" in settings:
        translated["ssl.key.password"] = settings["ssl.key.password"]
    algorithm = settings.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        # librdkafka's "none" is the empty string in Java.
        translated["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return translated


def _pem(settings: Mapping[str, str], prefix: str) -> str | None:
    if f"{prefix}.pem" in settings:
        return settings[f"{prefix}.pem"]
    location = settings.get(f"{prefix}.location")
    if location is None:
        return None
    try:
        return Path(location).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        message = f"kafka.client: {prefix}.location: cannot read {location} as PEM: {error}"
        raise ConfigurationError(message, f"set {prefix}.location to a PEM file that the driver can read") from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
