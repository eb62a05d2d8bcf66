"""The web configuration of exporter-toolkit: passwords and TLS with a real client, errors that name the key."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from functools import partial
from pathlib import Path

import bcrypt
import httpx
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.exporter.http.webconfig import parse_web_config, read_web_config, server_context

get = partial(httpx.get, verify=False)
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def pem(tmp_path_factory) -> Path:
    """A directory with a certificate for 127.0.0.1 and its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not here to make a certificate")
    home = tmp_path_factory.mktemp("pem")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=n01"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    return home


def test_only_the_right_password_is_accepted(tree, serve):
    tree.node()
    server = serve(parse_web_config(f"basic_auth_users:\n  alice: {HASH}\n", "web.yml"))
    url = f"http://127.0.0.1:{server.port}"
    for path in ("/metrics", "/ring", "/"):
        assert get(url + path, auth=("alice", "secret")).status_code == 200
        refused = get(url + path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
    for auth in (("alice", "wrong"), ("bob", "secret"), ("", ""), ("alice", "secret\0")):
        assert get(url, auth=auth).status_code == 401
    for header in ("Bearer x", "Basic !!", "Basic YWxpY2U=", "Basic", "basic /w=="):
        assert get(url, headers={"Authorization": header}).status_code == 401


def test_with_tls_plain_http_is_refused(tree, serve, pem):
    tree.node()
    text = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: TLS13\n"
    server = serve(parse_web_config(text, str(pem / "web.yml")))
    trust = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    assert httpx.get(f"https://127.0.0.1:{server.port}/metrics", verify=trust).status_code == 200
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{server.port}/metrics")


def test_a_client_certificate_can_be_required(tree, serve, pem):
    tree.node()
    tls = "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, "
    config = parse_web_config(tls + "client_auth_type: RequireAndVerifyClientCert}", str(pem / "web.yml"))
    url = f"https://127.0.0.1:{serve(config).port}/metrics"
    trust = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    with pytest.raises(httpx.HTTPError):
        httpx.get(url, verify=trust)
    trust.load_cert_chain(pem / "cert.pem", pem / "key.pem")
    assert httpx.get(url, verify=trust).status_code == 200


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tls_config: {}", "tls_config"),
        ("tls_server_config: {cert_file: a, key_file: b, ciphers: x}", "ciphers"),
        ("tls_server_config: {cert_file: a}", "key_file"),
        ("tls_server_config: {cert_file: a, key_file: [b]}", "key_file"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "min_version"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}", "client_auth_type"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: VerifyClientCertIfGiven}", "client_ca_file"),
        ("basic_auth_users: {alice: secret}", "alice"),
        ("basic_auth_users: [alice]", "basic_auth_users"),
        ("just a word", "the file"),
        ("a: [", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(text, named):
    with pytest.raises(SettingsError) as caught:
        parse_web_config(text, "web.yml")
    assert str(caught.value).startswith("web.yml: ")
    assert named in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.yml"):
        read_web_config(str(tmp_path / "nowhere.yml"))
    config = parse_web_config("tls_server_config: {cert_file: a.pem, key_file: b.pem}", str(tmp_path / "web.yml"))
    with pytest.raises(SettingsError, match=r"a\.pem"):
        server_context(config.tls)


@pytest.mark.parametrize(
    "text",
    [
        f"basic_auth_users:\n  alice: {HASH}\nbasic_auth_users:\n",
        f"basic_auth_users:\n  alice: {HASH}\n  alice: {HASH}\n",
        "[" * 20_000,
    ],
)
def test_a_key_that_is_set_twice_and_deep_nesting_are_refused(text):
    with pytest.raises(SettingsError, match=r"web.yml: not YAML"):
        parse_web_config(text, "web.yml")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (2 << 20)])
def test_a_file_that_is_no_text_or_has_no_end_is_one_sentence(tmp_path, content):
    (tmp_path / "web.yml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"web.yml"):
        read_web_config(str(tmp_path / "web.yml"))
