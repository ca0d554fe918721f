"""Properties with which a pipeline or environment file could execute code are refused, and all others are accepted."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from outbox_kit.pipeline.allowed_properties import catalog_problem, connector_problem, librdkafka_problem
from outbox_kit.pipeline.environment import IcebergTarget, Kafka, PostgresTarget
from outbox_kit.pipeline.model import Connector

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u;" password="${env:P}";'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plugin.library.paths", "/x.so"),
        ("ssl.engine.location", "/x.so"),
        ("ssl.engine.id", "x"),
        ("ssl.providers", "/x"),
        ("sasl.kerberos.kinit.cmd", "x"),
        ("sasl.kerberos.principal", "x; touch y"),
        ("sasl.kerberos.principal", "-Xx"),
        ("sasl.kerberos.keytab", '"$(touch y)'),
        ("interceptors", "x"),
        ("offset.store.path", "/etc/x"),
        ("error_cb", "x"),
        ("bootstrap.servers", "b:1"),
        ("PLUGIN.LIBRARY.PATHS", "/x.so"),
        ("plugin.library.paths\nsocket.timeout.ms", "/x.so"),
    ],
)
def test_refuses_properties_of_librdkafka_that_can_execute_code(key: str, value: str) -> None:
    assert key in librdkafka_problem(key, value)
    with pytest.raises(ValidationError):
        Kafka(bootstrap_servers="b:9092", client={key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanisms", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", "https://x"),
        ("sasl.kerberos.principal", "kafka/host.example@EXAMPLE"),
        ("ssl.keystore.location", "x.p12"),
        ("ssl.crl.location", "x.pem"),
        ("socket.timeout.ms", "1000"),
        ("socket.connection.setup.timeout.ms", "1000"),
        ("queued.max.messages.kbytes", "1000"),
        ("receive.message.max.bytes", "1000"),
        ("broker.address.family", "v4"),
        ("debug", "security"),
    ],
)
def test_accepts_properties_of_librdkafka_for_logins_and_limits(key: str, value: str) -> None:
    assert Kafka(bootstrap_servers="b:9092", client={key: value}).client == {key: value}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer.override.interceptor.classes", "x.Y"),
        ("consumer.override.metric.reporters", "x.Y"),
        ("admin.override.ssl.engine.factory.class", "x.Y"),
        ("producer.override.security.providers", "x.Y"),
        ("producer.override.ssl.provider", "x"),
        ("producer.override.sasl.kerberos.kinit.cmd", "x"),
        ("producer.override.sasl.login.class", "x.Y"),
        ("producer.override.config.providers.x.class", "x.Y"),
        ("producer.override.sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required x=y;"),
        ("producer.override.sasl.jaas.config", f"{PLAIN} com.sun.security.auth.module.JndiLoginModule required;"),
        ("producer.override.sasl.login.callback.handler.class", "x.Y"),
        ("signal.consumer.interceptor.classes", "x.Y"),
        ("value.converter.schema.registry.ssl.engine.factory.class", "x.Y"),
        ("value.converter.bearer.auth.custom.provider.class", "x.Y"),
        ("database.sslfactory", "x.Y"),
        ("database.initial.statements", "copy x to program 'y'"),
        ("database.dbname", "d?socketFactory=x.Y"),
        ("driver.socketFactory", "x.Y"),
        ("driver.loggerFile", "/x"),
        ("connection.url", "jdbc:postgresql://h/d?socketFactory=x.Y"),
        ("connection.url", "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'y'"),
        ("transforms.a.language", "jsr223.groovy"),
        ("metric.reporters", "x.Y"),
    ],
)
def test_refuses_properties_of_a_connector_that_can_execute_code(key: str, value: str) -> None:
    assert key in connector_problem(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector.class", "x.Y"),
        ("transforms.a.type", "x.Y"),
        ("transforms.a.aggregate.x.class", "x"),
        ("value.converter.subject.name.strategy", "x.Y"),
        ("value.converter.schema.registry.ssl.truststore.location", "/x"),
        ("producer.override.client.rack", "a"),
        ("producer.override.linger.ms", "5"),
        ("producer.override.sasl.jaas.config", PLAIN),
        ("producer.override.sasl.jaas.config", "${file:/x:jaas}"),
        (
            "producer.override.sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        ),
        ("database.dbname", "d"),
        ("driver.socketTimeout", "1"),
        ("connection.url", "jdbc:postgresql://h/d?sslmode=require&user=u"),
    ],
)
def test_accepts_other_properties_of_a_connector(key: str, value: str) -> None:
    assert connector_problem(key, value) == ""


@pytest.mark.parametrize(
    "key",
    [
        "driver.socketFactory",
        *(f"{client}.override.bootstrap.servers" for client in ("producer", "consumer", "admin")),
        "consumer.override.group.id",
        "database.port",
        "offsets.storage.topic",
    ],
)
def test_refuses_code_and_other_systems_in_overrides(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        Connector(name="c", overrides={key: "x.Y"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("catalog-impl", "x.Y"),
        ("client.factory", "x.Y"),
        ("metrics-reporter-impl", "x.Y"),
        ("table-default.write.location-provider.impl", "x.Y"),
        ("hadoop.fs.x.impl", "x.Y"),
        ("jdbc.socketFactory", "x.Y"),
        ("uri", "jdbc:postgresql://h/d?socketFactory=x.Y"),
        ("uri", "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'y'"),
    ],
)
def test_refuses_properties_of_a_catalog_that_can_execute_code(key: str, value: str) -> None:
    assert key in catalog_problem(key, value)
    with pytest.raises(ValidationError):
        IcebergTarget(kind="iceberg", namespace="n", catalog={key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("catalog-impl", "org.apache.iceberg.aws.glue.GlueCatalog"),
        ("io-impl", "org.apache.iceberg.aws.s3.S3FileIO"),
        ("rest.auth.type", "oauth2"),
        ("s3.endpoint", "https://x"),
        ("uri", "jdbc:postgresql://h/d?user=me&password=x&ssl=true"),
        ("uri", "thrift://h:9083"),
    ],
)
def test_accepts_other_properties_of_a_catalog(key: str, value: str) -> None:
    assert catalog_problem(key, value) == ""


def test_refuses_driver_properties_after_a_host() -> None:
    """The host becomes a part of a JDBC URL, in which `?` begins the properties of the driver."""
    with pytest.raises(ValidationError, match="host"):
        PostgresTarget(kind="postgres", host="h/d?socketFactory=x.Y&x=", database="d", user="u", password="p")
