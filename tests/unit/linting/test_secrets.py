"""Detection of secret keys and of values in plain text."""

from __future__ import annotations

import pytest
from tests.unit.linting.samples import configured, failed_checks, valid_input

from outbox_kit.linting.rules.secrets import is_secret_key, plain_text_secrets

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required username='me' "


@pytest.mark.parametrize(
    "key",
    [
        "database.password",
        "database.sslpassword",
        "producer.override.ssl.keystore.password",
        "producer.override.ssl.key.password",
        "producer.override.ssl.keystore.key",
        "producer.override.sasl.jaas.config",
        "value.converter.schema.registry.basic.auth.user.info",
        "value.converter.oauth.client.secret",
        "driver.apiKey",
        "driver.private-key",
        "x.bearer.token",
        "x.credentials",
        "x.passphrase",
    ],
)
def test_detects_secret_keys(key: str) -> None:
    assert is_secret_key(key)
    assert [check.id for check in failed_checks(configured(valid_input(), {key: "s3cret password=s3cret"}))] == [
        "lint.secret.connector"
    ]
    assert failed_checks(configured(valid_input(), {key: "${file:/secrets:x}"})) == []
    assert failed_checks(configured(valid_input(), {key: ""})) == []


@pytest.mark.parametrize(
    "key",
    [
        "value.converter.basic.auth.credentials.source",
        "producer.override.sasl.oauthbearer.token.endpoint.url",
        "producer.override.sasl.login.refresh.token.ms",
        "driver.password.file",
        "driver.secret.path",
        "producer.override.ssl.keystore.location",
        "producer.override.ssl.key.location",
        "key.converter",
        "message.key.columns",
        "driver.aws.access.key.id",
    ],
)
def test_accepts_keys_that_only_mention_secrets(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (JAAS + 'password="s3cret";', True),
        (JAAS + "password=s3cret;", True),
        (JAAS + 'password="${env:SECRET}";', False),
        (JAAS + "password=${env:SECRET};", False),
        ("x.KrbLoginModule required useKeyTab=true;", False),
        ("${file:/secrets:jaas}", False),
    ],
)
def test_detects_passwords_of_login_modules(value: str, plain: bool) -> None:
    actual = failed_checks(configured(valid_input(), {"producer.override.sasl.jaas.config": value}))
    assert [check.id for check in actual] == ["lint.secret.connector"] * plain


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("https://me:s3cret@registry.example.internal", True),
        ("https://me:${env:SECRET}@registry.example.internal", False),
        ("https://me@registry.example.internal", False),
        ("https://registry.example.internal:8443/a@b", False),
        ("jdbc:postgresql://db:5432/x", False),
    ],
)
def test_detects_passwords_in_urls(value: str, plain: bool) -> None:
    actual = failed_checks(configured(valid_input(), {"driver.proxy": value}))
    assert [check.id for check in actual] == ["lint.secret.connector"] * plain


def test_accepts_schemas_that_mention_passwords() -> None:
    schema = '{"type":"record","name":"Password","fields":[{"name":"secret","type":"string"}]}'
    assert failed_checks(configured(valid_input(), {"transforms.outbox.aggregate.book.schema.1": schema})) == []


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        ({"source": {"admin": {"password": "x"}}}, ("source.admin.password",)),
        ({"source": {"admin": {"password": "{{ env.X }}"}}}, ()),
        ({"source": {"admin": {"password": "prefix-{{ env.X }}"}}}, ()),
        ({"source": {"connector": {"password": "${env:X}"}}}, ()),
        ({"connect": {"token": 7, "password": None, "key_file": "k.pem"}}, ("connect.token",)),
        ({"targets": {"a": {"password": "x"}, "b": {"password": "{{ stack.y }}"}}}, ("targets.a.password",)),
        ({"list": ["https://a:b@c", "https://c"]}, ("list.0",)),
        ({"list": ["https://a:{{ env.X }}@c"]}, ()),
        ({}, ()),
    ],
)
def test_detects_plain_text_secrets_of_an_environment_file(data: dict[str, object], keys: tuple[str, ...]) -> None:
    assert plain_text_secrets(data) == keys
