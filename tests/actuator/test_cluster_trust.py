"""The API server of a cluster is trusted by its authority, also where that is a plain one."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fake_api import FakeApi
from pods import written

from stallward.actuator.runtime.cluster_trust import cluster_context
from stallward.actuator.targets.config import KubernetesConfig
from stallward.fleet.discovery.config import ServiceConfig
from stallward.fleet.discovery.endpoints import find_endpoints
from stallward.fleet.errors import DiscoveryError
from stallward.kubernetes.api import ApiPods
from stallward.kubernetes.errors import ApiError
from stallward.kubernetes.store import PodStore

NOW = datetime.datetime.now(tz=datetime.UTC)


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this Python be as strict as 3.13."""
    make = ssl.create_default_context

    def made(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = make(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey
) -> bytes:
    """A certificate without key identifiers, like those of some clusters."""
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .add_extension(address, critical=False)
        .sign(by, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """A server's side; the authority is ca.crt, and another one other.crt."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    (tmp_path / "ca.crt").write_bytes(certificate("kubernetes", keys[0], "kubernetes", keys[0]))
    (tmp_path / "other.crt").write_bytes(certificate("kubernetes", keys[1], "kubernetes", keys[1]))
    (tmp_path / "server.crt").write_bytes(certificate("server", keys[2], "kubernetes", keys[0]))
    (tmp_path / "server.key").write_bytes(
        keys[2].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (tmp_path / "token").write_text("one")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    return made


def test_an_authority_without_key_identifiers_is_one_and_another_is_not(
    tmp_path: Path, context: ssl.SSLContext
) -> None:
    api = FakeApi(tls=context).start()
    api.put(written("first"))
    token, store = tmp_path / "token", PodStore()

    def pods(authority: str) -> ApiPods:
        return ApiPods(KubernetesConfig(token=token, ca=tmp_path / authority), api.url, "node-7")

    def service(authority: str) -> ServiceConfig:
        return ServiceConfig(
            service="s", namespace="n", server=api.url, token=token, authority=tmp_path / authority
        )

    def operator(authority: str) -> ServiceConfig:
        cluster = {"server": api.url, "certificate-authority": authority}
        content = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "one"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(content))
        return ServiceConfig(service="s", namespace="n", kubeconfig=kubeconfig, context="x")

    try:
        pods("ca.crt").look(store)
        assert list(map(str, store.read().pods)) == ["work/first"]
        find_endpoints(service("ca.crt"))
        find_endpoints(operator("ca.crt"))
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            pods("other.crt").look(store)
        with pytest.raises(DiscoveryError, match="certificate verify failed"):
            find_endpoints(service("other.crt"))
        with pytest.raises(DiscoveryError, match="certificate verify failed"):
            find_endpoints(operator("other.crt"))
    finally:
        api.stop()


def test_an_authority_may_have_comments_and_an_empty_one_is_none(tmp_path: Path) -> None:
    """An empty text would mean the authorities of the system."""
    file = tmp_path / "ca.crt"
    file.write_bytes("# größte Behörde\n".encode() + trustme.CA().cert_pem.bytes())
    assert len(cluster_context(file).get_ca_certs()) == 1
    file.write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011 - whatever OpenSSL says
        cluster_context(file)
