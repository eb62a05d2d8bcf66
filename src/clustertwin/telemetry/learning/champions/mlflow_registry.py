"""The only module that imports MLflow: a night's record -> runs, metrics, artifacts, a model version and its aliases.

Every call passes its ids explicitly; nothing relies on MLflow's global state. A version is registered as its plain
files, safetensors and JSON, never as a pickle. A downloaded version is used only if its SHA-256 matches. A record can
be sent any number of times: a tag with the night's name identifies its run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import SourceError
from clustertwin.core.extras import require
from clustertwin.core.formatting import visible
from clustertwin.telemetry.detection.detector_store import read
from clustertwin.telemetry.learning.champions.registry import NightRecord
from clustertwin.telemetry.learning.champions.version_store import digest
from clustertwin.telemetry.models.model_store import ModelError

MODEL = "clustertwin"
_TAG = "clustertwin.record"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # not "Creating initial MLflow database tables"
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # `--json` prints one document and nothing else
    # By default MLflow retries for many minutes when a server is gone. A night must not wait for that.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


class MlflowRegistry:
    """An MLflow tracking server by URL, or a database file."""

    def __init__(self, uri: str) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.uri = uri
        mlflow = require("mlflow", "learn")
        with self._errors_as_source_error():
            self._client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)

    def add_night(self, record: NightRecord) -> str:
        """Register a record and return the id of its run."""
        with self._errors_as_source_error():
            return self._add_night(record)

    def set_champion(self, version: str, directory: Path, sha256: str) -> None:
        """Point the alias `champion` to this version. A version that no night registered is registered first."""
        with self._errors_as_source_error():
            if self.champion() == version:
                return
            number = self._version_number(version)
            if number is None:
                run = self._find_or_create_run(self._experiment_id(), f"version {version}", version, {})
                number = self._register(run, str(directory), {"version": version, "sha256": sha256, "night": ""})
                self._client.set_terminated(run.info.run_id)
            self._client.set_registered_model_alias(MODEL, "champion", number)

    def fetch(self, version: str, into: Path) -> None:
        """Download one of our versions. A foreign or damaged model raises `ModelError` and leaves no files behind."""
        registered = self._registered(version)
        if registered is None:
            raise ModelError(without_password(self.uri), f"no version {version!r} that clustertwin registered")
        self._download(registered, into)

    def champion(self) -> str:
        """The version that the alias `champion` points to; empty if there is none, or if it is not one of ours."""
        try:
            registered = self._client.get_model_version_by_alias(MODEL, "champion")
        except Exception:
            return ""
        return str(registered.tags.get("version", ""))

    def _add_night(self, record: NightRecord) -> str:
        client = self._client
        experiment = self._experiment_id()
        run = self._find_or_create_run(experiment, record.name, record.name, {})
        if run.data.tags.get("done") != "yes":
            for key, value in record.params.items():
                client.log_param(run.info.run_id, key, value)
            self._log_metrics(run.info.run_id, record.metrics)
            parent = {"mlflow.parentRunId": run.info.run_id}
            for name, metrics in record.runs.items():
                child = self._find_or_create_run(experiment, f"{record.name} {name}", name, parent)
                self._log_metrics(child.info.run_id, metrics)
                client.set_terminated(child.info.run_id)
            client.log_artifacts(run.info.run_id, record.files, "night")
            client.set_terminated(run.info.run_id)
            client.set_tag(run.info.run_id, "done", "yes")
        for name, other in record.others.items():
            if self._version_number(other.version) is None:
                child = self._find_or_create_run(experiment, f"{record.name} {name}", name, {})
                tags = {"version": other.version, "sha256": other.sha256, "night": record.name}
                self._register(child, other.model, tags)
        if record.model:
            tags = {"version": record.version, "sha256": record.sha256, "night": record.name}
            number = self._version_number(record.version) or self._register(run, record.model, tags)
            # Set the alias last, so that it always points to a complete version.
            client.set_registered_model_alias(MODEL, "challenger", number)
        return str(run.info.run_id)

    def _register(self, run: Any, directory: str, tags: dict[str, str]) -> str:
        client = self._client
        client.log_artifacts(run.info.run_id, directory, "model")
        if not any(model.name == MODEL for model in client.search_registered_models(f"name = '{MODEL}'")):
            client.create_registered_model(MODEL, description="Detectors of clustertwin: safetensors and JSON.")
        source = f"{run.info.artifact_uri}/model"
        return str(client.create_model_version(MODEL, source, run.info.run_id, tags=tags).version)

    def _registered(self, version: str) -> Any | None:
        """MLflow's entry of one of our versions; None if it is not registered."""
        entries = self._client.search_model_versions(f"name = '{MODEL}'")
        return next((entry for entry in entries if entry.tags.get("version") == version), None)

    def _version_number(self, version: str) -> str | None:
        entry = self._registered(version)
        return None if entry is None else str(entry.version)

    @contextmanager
    def _errors_as_source_error(self) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:  # of MLflow, its database or its HTTP client: they share no base class
            # The text can be empty, quote the answer of a server, or name the URI with its password.
            where, text = without_password(self.uri), visible(str(error).partition("\n")[0])
            text = text.replace(self.uri.rstrip("/"), where)[:200]
            raise SourceError(f"{where}: {type(error).__name__}: {text}") from error

    def _experiment_id(self) -> str:
        experiment = self._client.get_experiment_by_name(MODEL)
        if experiment is not None:
            return str(experiment.experiment_id)
        location = None
        if self.uri.startswith("sqlite:///"):
            location = (Path(self.uri.removeprefix("sqlite:///")).parent / "artifacts").as_uri()
        return str(self._client.create_experiment(MODEL, artifact_location=location))

    def _find_or_create_run(self, experiment: str, key: str, name: str, tags: dict[str, str]) -> Any:
        runs = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{key}'", max_results=1)
        return runs[0] if runs else self._client.create_run(experiment, run_name=name, tags={_TAG: key, **tags})

    def _log_metrics(self, run_id: str, metrics: dict[str, float]) -> None:
        for key, value in metrics.items():
            self._client.log_metric(run_id, key, value)

    def _download(self, registered: Any, into: Path) -> None:
        files.make_directory(into.parent)
        with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
            try:
                self._client.download_artifacts(registered.run_id, "model", scratch)
            except Exception as error:
                raise ModelError(self.uri, f"version {registered.version} of {MODEL} has no files: {error}") from error
            draft = Path(scratch) / "model"
            if digest(draft) != registered.tags.get("sha256"):
                raise ModelError(
                    self.uri, f"version {registered.version} of {MODEL}: its SHA-256 differs from the registered one"
                )
            read(draft)
            files.publish_directory(draft, into)


def without_password(uri: str) -> str:
    """The URI as it can be shown.

    >>> without_password("https://ada:secret@mlflow.example.org"), without_password("sqlite:///a@b/mlflow.db")
    ('https://mlflow.example.org', 'sqlite:///a@b/mlflow.db')
    """
    scheme, separator, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def embedded_uri(home: Path) -> str:
    """The URI of the MLflow database in a home; creates its directory."""
    directory = home / "mlflow"
    files.make_directory(directory)
    return f"sqlite:///{directory / 'mlflow.db'}"
