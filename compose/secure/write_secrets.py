"""Certificates and secret files of the profile `secure`; the service `secrets` writes them before other services start.

/secrets/SERVICE is a volume that only the containers of SERVICE mount, as /run/secrets. Certificates are created once.
The key of the authority that signs them is in a volume that no other service mounts. Password files are rewritten at
each start.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
import string
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from outbox_kit.stack.services.jvm import render_properties

ROOT = Path("/secrets")
OWNER = 10001
DAYS = 3650
HOSTS = {
    "kafka": ("kafka", "kafka-2", "kafka-3"),
    "connect": ("connect-1", "connect-2"),
    "postgres": ("postgres",),
}
CERTIFICATE = "server.pem"
READ_ONLY_BY_OWNER = 0o600
PEM, NO_PASSWORD = serialization.Encoding.PEM, serialization.NoEncryption()
HBA = "hostssl all all all scram-sha-256\nhostssl replication all all scram-sha-256\n"
JAAS = """\
KafkaConnect {
  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required
  file="/run/secrets/rest-users.properties";
};
"""


@dataclass(frozen=True)
class Authority:
    """Key and certificate of the certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def load_authority(folder: Path) -> Authority:
    """Load the authority; create it at the first start."""
    key_file, certificate_file = folder / "ca.key", folder / "ca.pem"
    if certificate_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SystemExit(f"{key_file} does not contain an elliptic curve key: delete the volume")
        return Authority(key, x509.load_pem_x509_certificate(certificate_file.read_bytes()))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "outbox-kit compose")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    certificate = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    key_file.write_bytes(_key_bytes(key))
    certificate_file.write_bytes(certificate.public_bytes(PEM))
    return Authority(key, certificate)


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, NO_PASSWORD)


def certify(authority: Authority, service: str, folder: Path) -> None:
    """Write key and certificate of a service, in the formats that its programs read."""
    if (folder / CERTIFICATE).exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in (*HOSTS[service], "localhost")]
    # Programs on this machine connect to 127.0.0.1.
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, service)])
    certificate = (
        _builder(name, authority.certificate.subject, key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        # Without both key identifiers, Python 3.13 rejects the certificate by default (VERIFY_X509_STRICT).
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        # Brokers and workers are also clients of each other.
        .add_extension(
            x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    (folder / "server.key").write_bytes(_key_bytes(key))
    # Kafka reads key and certificates from one PEM file.
    (folder / "keystore.pem").write_bytes(_key_bytes(key) + certificate.public_bytes(PEM))
    if service == "connect":
        _java_stores(authority, key, certificate, folder)
    # Written last: its existence means that all other files exist.
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(PEM))


def _java_stores(
    authority: Authority, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, folder: Path
) -> None:
    """Write PKCS12 stores, the only format that Connect's REST server reads."""
    password = "".join(secrets.choice(string.ascii_letters) for _ in range(32))
    encryption = serialization.BestAvailableEncryption(password.encode())
    keystore = pkcs12.serialize_key_and_certificates(b"connect", key, certificate, [authority.certificate], encryption)
    (folder / "keystore.p12").write_bytes(keystore)
    trusted = [pkcs12.PKCS12Certificate(authority.certificate, b"ca")]
    (folder / "truststore.p12").write_bytes(pkcs12.serialize_java_truststore(trusted, encryption))
    (folder / "stores.properties").write_text(f"password={password}\n")


def write_passwords() -> None:
    """Write the password files of the servers, so that neither a config nor an environment contains passwords."""
    env = os.environ
    users = {user: env[f"KAFKA_{user.upper()}_PASSWORD"] for user in ("admin", "connect", "spark")}
    users["tool"] = env["KAFKA_PASSWORD"]
    (ROOT / "kafka" / "users.properties").write_text(render_properties(users))
    connect = ROOT / "connect"
    passwords = {"kafka": users["connect"], "source": env["CONNECTOR_PASSWORD"]}
    (connect / "connect.properties").write_text(render_properties(passwords))
    (connect / "rest-users.properties").write_text(render_properties({"outbox-kit": env["CONNECT_REST_PASSWORD"]}))
    (connect / "jaas.conf").write_text(JAAS)
    credentials = f"outbox-kit:{env['CONNECT_REST_PASSWORD']}".encode()
    (connect / "authorization").write_text("Basic " + base64.b64encode(credentials).decode())
    (ROOT / "postgres" / "pg_hba.conf").write_text(HBA)


def main() -> None:
    """Write all files, owned by the user that the servers run as."""
    os.umask(0o077)
    authority = load_authority(ROOT / "ca")
    for service in HOSTS:
        certify(authority, service, ROOT / service)
    for service in (*HOSTS, "clients"):
        (ROOT / service / "ca.pem").write_bytes(authority.certificate.public_bytes(PEM))
    write_passwords()
    for service in (*HOSTS, "clients"):
        for path in (ROOT / service, *(ROOT / service).iterdir()):
            os.chown(path, OWNER, OWNER)
            path.chmod(0o700 if path.is_dir() else READ_ONLY_BY_OWNER)


if __name__ == "__main__":
    main()
