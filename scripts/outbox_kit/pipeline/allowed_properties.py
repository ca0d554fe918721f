"""Define the properties of Kafka clients, drivers and catalogs that pipeline and environment files can set.

Other properties load libraries or classes, run programs, or write files. With such a property, a file that somebody
else wrote could execute code in the command, in a Connect worker or in a Spark driver. With `bootstrap.servers`, the
connector would write to a cluster that no command compares.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

_BOTH_CLIENTS = """*.bytes *.kbytes *.messages *.ms *.seconds allow.auto.create.topics check.crcs client.dns.lookup
    client.id client.rack compression.* enable.metrics.push max.in.flight.requests.per.connection
    metadata.recovery.strategy sasl.mechanism sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol ssl.cipher.suites
    ssl.endpoint.identification.algorithm ssl.key.password ssl.keystore.*"""
ALLOWED = {
    "kafka.client": f"""{_BOTH_CLIENTS} api.version.request broker.address.* broker.version.fallback debug
        enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.* log.connection.close
        log_level max.in.flight sasl.kerberos.keytab sasl.kerberos.principal sasl.mechanisms sasl.oauthbearer.*
        sasl.password sasl.username socket.* ssl.ca.* ssl.certificate.location ssl.certificate.pem ssl.crl.location
        ssl.curves.list ssl.key.location ssl.key.pem ssl.sigalgs.list topic.metadata.refresh.sparse""",
    "producer.override": f"""{_BOTH_CLIENTS} acks auto.offset.reset batch.size buffer.memory enable.idempotence
        isolation.level max.poll.records max.request.size
        partitioner.adaptive.partitioning.enable partitioner.ignore.keys retries sasl.client.callback.handler.class
        sasl.jaas.config sasl.kerberos.ticket.* sasl.login.callback.handler.class sasl.login.refresh.*
        sasl.oauthbearer.expected.* sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.scope.claim.name ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol
        ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.*""",
    "database": "dbname hostname password port *.ms sslcert sslkey sslmode sslpassword sslrootcert tcpKeepAlive user",
    "driver": """ApplicationName *Timeout channelBinding gssEncMode hostRecheckSeconds loadBalanceHosts options
        prepareThreshold receiveBufferSize sendBufferSize sslcert sslkey sslmode sslNegotiation sslpassword sslrootcert
        targetServerType tcpKeepAlive tcpNoDelay""",
    "catalog": """type warehouse uri prefix credential token scope audience resource oauth2-server-uri token-* header.*
        cache.* cache-enabled clients default-namespace table-default.* table-override.* rest.* client.* glue.* s3.*
        dynamodb.* gcs.* adls.* jdbc.password jdbc.user hadoop.fs.azure.account.* hadoop.fs.s3a.access.key
        hadoop.fs.s3a.endpoint hadoop.fs.s3a.endpoint.region hadoop.fs.s3a.path.style.access hadoop.fs.s3a.secret.key
        hadoop.fs.s3a.session.token catalog-impl io-impl lock-impl""",
}
"""Allowed properties by place, as words. `*` is any text. The list of producers is valid for all Java clients."""
LOGIN_CLASSES = """org.apache.kafka.common.security.plain.PlainLoginModule
    org.apache.kafka.common.security.scram.ScramLoginModule
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
    com.sun.security.auth.module.Krb5LoginModule
    software.amazon.msk.auth.iam.IAMLoginModule software.amazon.msk.auth.iam.IAMClientCallbackHandler"""
"""Values that `sasl.jaas.config` and `sasl.*.callback.handler.class` can have."""
CATALOG_PACKAGES = ("org.apache.iceberg.", "software.amazon.awssdk.auth.credentials.")
REFERENCE = "docs/pipeline.md, Allowed properties"
_PATTERNS = {
    place: re.compile("|".join(re.escape(name).replace(r"\*", ".+") for name in names.split()))
    for place, names in ALLOWED.items()
}
_LOGIN = re.compile(
    rf"\$\{{[^{{}}]*\}}|\s*({'|'.join(map(re.escape, LOGIN_CLASSES.split()))})"
    r'(\s+\w+(\s+[\w.]+=("(\\.|[^"\\])*"|[^\s;"]+))*\s*;\s*)?'
)
_JAVA_CLIENT = re.compile(
    r"((?:(?:producer|consumer|admin)\.override|signal\.(?:producer|consumer)|(?:key|value|header)\.converter(?:\..*?)?"
    r"(?=\.(?:sasl|security|ssl)\.))\.)(.+)"
)
# Keys of other parts of a connector config that select a class, a script or a program.
_CODE = re.compile(
    r"(?!connector\.class$|transforms\.|predicates\.).*\.(class|classes|cmd|factory|providers|reporters)"
    r"|(transforms|predicates)\.[^.]+\.language|hibernate\..*|connection\.provider"
)
_CATALOG_CODE = re.compile(r".*(impl|class|factory|provider|auth\.type)")
_PARAMETER = r"(ApplicationName|password|ssl|sslcert|sslkey|sslmode|sslrootcert|user)=[^&]*"
_URL = re.compile(rf"(?!jdbc:).*|jdbc:(postgresql|mysql|mariadb)://[^?;]*(\?{_PARAMETER}(&{_PARAMETER})*)?", re.DOTALL)
# librdkafka inserts the values of these properties into a command that a shell executes.
_KINIT_ARGUMENT = re.compile(r"sasl\.kerberos\.(keytab|principal|service\.name)")


def librdkafka_problem(key: str, value: str) -> str:
    """Return why `kafka.client` cannot contain a property, or an empty string."""
    if _KINIT_ARGUMENT.fullmatch(key) and re.fullmatch(r"(?!-)[A-Za-z0-9._/@-]*", value) is None:
        return f"{key} can contain only ASCII letters, digits and ._/@-, because it is an argument of kinit"
    return _name_problem("kafka.client", key)


def connector_problem(key: str, value: str) -> str:
    """Return why a connector config cannot contain a property, or an empty string."""
    if client := _JAVA_CLIENT.fullmatch(key):
        if client[2].endswith((".jaas.config", ".class")) and _LOGIN.fullmatch(value) is None:
            return f"{key} must be a placeholder or one of the classes {', '.join(LOGIN_CLASSES.split())}"
        return _name_problem("producer.override", client[2], client[1])
    section, _, name = key.partition(".")
    if section == "database" and name in ("hostname", "port", "dbname") and "?" in value:
        return f"{key} contains `?`, after which a JDBC URL has properties of the driver"
    if section in ("database", "driver"):
        return _name_problem(section, name, f"{section}.")
    if _CODE.fullmatch(key):
        return f"{key} is not allowed, because it selects code; see {REFERENCE}"
    return _url_problem(key, value) if key == "connection.url" else ""


def catalog_problem(key: str, value: str) -> str:
    """Return why `catalog` of an Iceberg target cannot contain a property, or an empty string."""
    if _CATALOG_CODE.fullmatch(key) and "." in value and not value.startswith(CATALOG_PACKAGES):
        return f"{key} must be a class of {' or '.join(CATALOG_PACKAGES)}"
    return _name_problem("catalog", key) or (_url_problem(key, value) if key == "uri" else "")


def _name_problem(place: str, name: str, prefix: str = "") -> str:
    if _PATTERNS[place].fullmatch(name):
        return ""
    similar = difflib.get_close_matches(name, ALLOWED[place].split(), n=1)
    suggestion = f"did you mean {prefix}{similar[0]}? " if similar else ""
    reason = "unlisted properties can execute code or select another cluster"
    return f"{prefix}{name} is not allowed, because {reason}; {suggestion}see {REFERENCE}"


def _url_problem(key: str, value: str) -> str:
    return "" if _URL.fullmatch(value) else f"{key} is a JDBC URL with a driver or property that is not allowed"


def require_allowed(properties: dict[str, str], problem_of: Callable[[str, str], str]) -> dict[str, str]:
    """Return the properties. Raise ValueError if one is not allowed. The message contains keys and no values."""
    problems = [problem for key, value in properties.items() if (problem := problem_of(key, value))]
    if problems:
        raise ValueError("; ".join(problems))
    return properties
