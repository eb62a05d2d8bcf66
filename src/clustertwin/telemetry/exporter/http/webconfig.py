"""The web configuration of exporter-toolkit: a YAML file -> TLS and basic authentication."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustertwin.core.errors import SettingsError

if TYPE_CHECKING:
    import ssl

TLS_KEYS = frozenset({"cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version"})
CLIENT_AUTH = {"NoClientCert": "CERT_NONE", "VerifyClientCertIfGiven": "CERT_OPTIONAL"}
CLIENT_AUTH["RequireAndVerifyClientCert"] = "CERT_REQUIRED"
VERSIONS = {"TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}


#: Of the file: a thousand users take 100,000.
MOST_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Paths are absolute, or relative to the configuration file."""

    cert_file: str
    key_file: str
    client_auth_type: str = "NoClientCert"
    client_ca_file: str = ""
    min_version: str = "TLS12"
    max_version: str = "TLS13"


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Who may connect, and how. If it is empty, everyone may connect over plain HTTP."""

    tls: TlsSettings | None = None
    users: dict[str, str] = field(default_factory=dict)  # name -> bcrypt hash


def read_web_config(path: str) -> WebConfig:
    """The configuration of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_CHARS + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or a zero byte in the path
        raise SettingsError(f"{path!r}: {error}") from error
    if len(text) > MOST_CHARS:
        raise SettingsError(f"{path}: longer than {MOST_CHARS:,} characters, so it is not a web configuration")
    return parse_web_config(text, path)


def parse_web_config(text: str, path: str) -> WebConfig:
    """The configuration of a text. `path` is used in messages and to resolve relative file names."""
    import yaml

    class Strict(yaml.SafeLoader):
        """Refuses a key that is set twice: of two lists of users, the second one would count, and it may be empty."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [str(key.value) for key, _ in node.value]
            if len(set(names)) < len(names):
                raise yaml.constructor.ConstructorError(None, None, "a key is set twice", node.start_mark)
            return super().construct_mapping(node, deep)

    try:
        document = yaml.load(text, Strict)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    top = _mapping(document if document is not None else {}, path, "the file")
    _refuse_unknown(top, {"tls_server_config", "basic_auth_users"}, path)
    users = _mapping(top.get("basic_auth_users") or {}, path, "basic_auth_users")
    for name, hashed in users.items():
        if not (isinstance(hashed, str) and hashed.startswith(("$2a$", "$2b$", "$2y$")) and len(hashed) == 60):
            raise SettingsError(f"{path}: basic_auth_users: {name}: not a bcrypt hash ($2y$…, 60 characters)")
        if ":" in name:
            raise SettingsError(f"{path}: basic_auth_users: {name}: a user name must not contain a colon")
    return WebConfig(_tls(top.get("tls_server_config"), path), users)


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context of the server; SettingsError if a certificate or key cannot be used."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion[VERSIONS[tls.min_version]]
    context.maximum_version = ssl.TLSVersion[VERSIONS[tls.max_version]]
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.cert_file, tls.key_file, tls.client_ca_file)))
        raise SettingsError(f"TLS with {files}: {error}") from error
    context.verify_mode = ssl.VerifyMode[CLIENT_AUTH[tls.client_auth_type]]
    return context


def _tls(value: Any, path: str) -> TlsSettings | None:
    if value is None:
        return None
    section = _mapping(value, path, "tls_server_config")
    _refuse_unknown(section, TLS_KEYS, f"{path}: tls_server_config")
    for key, text in section.items():
        if not isinstance(text, str):
            raise SettingsError(f"{path}: tls_server_config: {key}: must be a string")
    for key in ("cert_file", "key_file"):
        if not section.get(key):
            raise SettingsError(f"{path}: tls_server_config: {key} is missing")
    home = os.path.dirname(os.path.abspath(path))
    files = {key: os.path.join(home, text) for key, text in section.items() if key.endswith("_file") and text}
    tls = TlsSettings(**{**section, **files})
    for key, known in (("client_auth_type", CLIENT_AUTH), ("min_version", VERSIONS), ("max_version", VERSIONS)):
        if getattr(tls, key) not in known:
            choices = ", ".join(known)
            raise SettingsError(f"{path}: tls_server_config: {key}: {getattr(tls, key)!r} is not one of {choices}")
    if tls.client_auth_type != "NoClientCert" and not tls.client_ca_file:
        raise SettingsError(f"{path}: tls_server_config: client_auth_type {tls.client_auth_type} needs client_ca_file")
    return tls


def _mapping(value: Any, path: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SettingsError(f"{path}: {what}: must be a mapping of names")
    return value


def _refuse_unknown(section: dict[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    for key in section:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}; the keys are {', '.join(sorted(known))}")
