"""Kafka client settings: translation for the Java consumer, and errors of the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_spark.kafka.offset_ranges import describe
from outbox_spark.kafka.settings import java_settings


def test_reports_an_unreachable_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_spark.kafka.offset_ranges.REQUEST_SECONDS", 0.5)
    with pytest.raises(UnreachableError, match=r"Kafka at 127\.0\.0\.1:1: topic t: "):
        describe({"bootstrap.servers": "127.0.0.1:1"}, "t")


@pytest.mark.parametrize("name", ["no.such.setting", "plugin.library.paths"])
def test_rejects_an_unsupported_setting(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"does not support: {name}") as caught:
        describe({"bootstrap.servers": "127.0.0.1:1", name: "s3cret"}, "t")
    assert "kafka.client" in caught.value.hint
    assert "s3cret" not in str(caught.value)


def test_keeps_settings_shared_by_both_clients() -> None:
    settings = {"bootstrap.servers": "a:1,b:2", "security.protocol": "SSL", "client.id": "x"}
    assert java_settings(settings) == settings


def test_translates_user_and_password_to_a_login_module() -> None:
    settings = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"\\'}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert java_settings(settings) == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": module + ' required username="u" password="p\\"\\\\";',
    }


def test_passes_certificates_inline(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("CA")
    settings = {"ssl.ca.location": str(authority), "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}
    settings["ssl.endpoint.identification.algorithm"] = "none"
    assert java_settings(settings) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.oauthbearer.config": "x"}, r"does not support: sasl\.oauthbearer\.config"),
        ({"sasl.mechanism": "GSSAPI", "sasl.username": "u"}, r"sasl\.mechanism 'GSSAPI'"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, r"cannot read /nowhere/ca\.pem"),
    ],
)
def test_rejects_settings_without_a_counterpart(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        java_settings(settings)
