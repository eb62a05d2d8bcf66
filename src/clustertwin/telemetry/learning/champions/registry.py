"""The only door to MLflow: a night's record -> runs, metrics, artifacts, a model version and its aliases.

Every call names its ids; nothing is global. What is registered are the files of a version as they are, safetensors and
JSON with their hashes, never a pickle, and nothing that comes out of a registry is trusted before its hash is checked.
A record is entered once, however often it is sent: its run is found again by the night's name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustertwin.core.errors import SourceError
from clustertwin.core.extras import require
from clustertwin.telemetry.detection.detector_store import read
from clustertwin.telemetry.models.model_store import ModelError

MODEL = "clustertwin"
_TAG = "clustertwin.record"
#: A night must not hang on a server that is gone: MLflow's own patience is many minutes.
_CALM = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # where one JSON document is promised, and nothing else
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


@dataclass(frozen=True, slots=True)
class Record:
    """One night, as it is registered; every contestant becomes a run below the night's."""

    name: str  # the night's day
    params: dict[str, str]
    metrics: dict[str, float]
    runs: dict[str, dict[str, float]]  # contestant -> metrics
    files: str  # directory of the night's documents and figures
    model: str = ""  # directory of the best challenger; empty: there was none
    version: str = ""
    sha256: str = ""


class Registry:
    """An MLflow tracking server by URL, or a database file; `experiment` is its name there."""

    def __init__(self, uri: str, experiment: str = MODEL) -> None:
        for name, value in _CALM.items():
            os.environ.setdefault(name, value)
        self.uri, self.experiment = uri, experiment
        self._client = require("mlflow", "learn").MlflowClient(tracking_uri=uri, registry_uri=uri)

    def enter(self, record: Record) -> str:
        """Register a record, its alias last; returns the run's id. SourceError where the server does not take it."""
        with self._answering():
            return self._enter(record)

    def serve(self, version: str, directory: Path, sha256: str) -> None:
        """Let the alias `champion` name the version in service; one that no night registered is registered first."""
        with self._answering():
            if self.champion() == version:
                return
            number = self._number(version)
            if number is None:
                run = self._run(self._experiment_id(), f"version {version}", version, {})
                number = self._register(run, str(directory), {"version": version, "sha256": sha256, "night": ""})
                self._client.set_terminated(run.info.run_id)
            self._client.set_registered_model_alias(MODEL, "champion", number)

    def fetch(self, version: str, into: Path) -> None:
        """The files of one of our versions; a foreign or damaged model is a `ModelError` and leaves nothing behind."""
        numbers = [v for v in self._versions() if v.tags.get("version") == version]
        if not numbers:
            raise ModelError(self.uri, f"no version {version!r} that clustertwin registered")
        self._download(numbers[0], into)

    def champion(self) -> str:
        """The version that the alias names; empty where there is none, or a model that is not ours."""
        try:
            found = self._client.get_model_version_by_alias(MODEL, "champion")
        except Exception:
            return ""
        return str(found.tags.get("version", ""))

    def _enter(self, record: Record) -> str:
        client = self._client
        experiment = self._experiment_id()
        run = self._run(experiment, record.name, record.name, {})
        if run.data.tags.get("done") != "yes":
            for key, value in record.params.items():
                client.log_param(run.info.run_id, key, value)
            self._measure(run.info.run_id, record.metrics)
            for name, metrics in record.runs.items():
                child = self._run(experiment, f"{record.name} {name}", name, {"mlflow.parentRunId": run.info.run_id})
                self._measure(child.info.run_id, metrics)
                client.set_terminated(child.info.run_id)
            client.log_artifacts(run.info.run_id, record.files, "night")
            client.set_terminated(run.info.run_id)
            client.set_tag(run.info.run_id, "done", "yes")
        if record.model:
            tags = {"version": record.version, "sha256": record.sha256, "night": record.name}
            number = self._number(record.version) or self._register(run, record.model, tags)
            # The alias last: whoever follows it finds a version that is complete.
            client.set_registered_model_alias(MODEL, "challenger", number)
        return str(run.info.run_id)

    def _register(self, run: Any, directory: str, tags: dict[str, str]) -> str:
        client = self._client
        client.log_artifacts(run.info.run_id, directory, "model")
        if not any(found.name == MODEL for found in client.search_registered_models(f"name = '{MODEL}'")):
            client.create_registered_model(MODEL, description="Detectors of clustertwin: safetensors and JSON.")
        source = f"{run.info.artifact_uri}/model"
        return str(client.create_model_version(MODEL, source, run.info.run_id, tags=tags).version)

    def _number(self, version: str) -> str | None:
        """What MLflow calls one of our versions; None where it is not registered."""
        return next((str(v.version) for v in self._versions() if v.tags.get("version") == version), None)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:  # MLflow's, its database's or its HTTP client's, which share no root
            raise SourceError(f"{self.uri}: {type(error).__name__}: {str(error).splitlines()[0][:200]}") from error

    def _versions(self) -> list[Any]:
        return list(self._client.search_model_versions(f"name = '{MODEL}'"))

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.uri.startswith("sqlite:///"):
            location = (Path(self.uri.removeprefix("sqlite:///")).parent / "artifacts").as_uri()
        return str(self._client.create_experiment(self.experiment, artifact_location=location))

    def _run(self, experiment: str, key: str, name: str, tags: dict[str, str]) -> Any:
        """The run with this key, made if it is not there."""
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{key}'", max_results=1)
        if found:
            return found[0]
        return self._client.create_run(experiment, run_name=name, tags={_TAG: key, **tags})

    def _measure(self, run_id: str, metrics: dict[str, float]) -> None:
        for key, value in metrics.items():
            self._client.log_metric(run_id, key, value)

    def _download(self, found: Any, into: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                self._client.download_artifacts(found.run_id, "model", scratch)
            except Exception as error:
                raise ModelError(self.uri, f"version {found.version} of {MODEL} has no files: {error}") from error
            from clustertwin.telemetry.learning.champions.champion_store import digest

            files = Path(scratch) / "model"
            if digest(files) != found.tags.get("sha256"):
                raise ModelError(self.uri, f"version {found.version} of {MODEL}: its SHA-256 is not the registered one")
            read(files)
            into.parent.mkdir(parents=True, exist_ok=True)
            files.rename(into)


def embedded(home: Path) -> str:
    """The address of the database in a home."""
    directory = home / "mlflow"
    directory.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{directory / 'mlflow.db'}"
