"""Where evidence comes from: a job and its nodes -> evidence, from this host or from the helpers of the nodes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertwin.core.errors import InputError, SettingsError, SourceError
from clustertwin.core.foreign_files import read_secret
from clustertwin.service.act.bounded_answer import PLAIN, body_of
from clustertwin.service.act.slurm_commands import check_node
from clustertwin.telemetry.diagnosis.evidence import MAX_BYTES, JobEvidence, merge, parse_evidence
from clustertwin.telemetry.diagnosis.evidence_subprocess import NO_PROCESS, take_in_subprocess
from clustertwin.telemetry.exporter.http.loopback import is_loopback
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.socket_deadline import SocketDeadline

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
MOST_NODES = 64
MOST_AT_ONCE = 16
#: job, owner's user id, nodes -> evidence of all nodes that answered
TakeEvidence = Callable[[str, int, Sequence[str]], JobEvidence]


@dataclass(frozen=True, slots=True)
class HelperSettings:
    """How to reach the helpers."""

    url: str  # with {node} in it: https://{node}:9753
    username: str = "twin"
    password_file: str = ""
    ca_file: str = ""


def take_on_this_host(job: str, owner: int, nodes: Sequence[str]) -> JobEvidence:
    """Take evidence in a process of its own, so that the service itself never attaches to anything."""
    evidence = take_in_subprocess(job, owner, nodes[0] if len(nodes) == 1 else "")
    if evidence is None:
        raise SourceError(f"no evidence of job {job}: it {NO_PROCESS}")
    return evidence


def from_helpers(settings: HelperSettings, clock: Callable[[], float] = time.time) -> TakeEvidence:
    """Ask the helper of each node of the job. Evidence without some nodes is evidence of the others."""
    if "{node}" not in settings.url:
        raise SettingsError(f"hand.helper: {settings.url!r} must contain {{node}}, as in https://{{node}}:9753")
    endpoint = Endpoint(settings.url.replace("{node}", "node"))
    password = read_secret(settings.password_file) if settings.password_file else ""

    def take(job: str, owner: int, nodes: Sequence[str]) -> JobEvidence:
        import httpx

        auth = httpx.BasicAuth(settings.username, password)
        with httpx.Client(auth=auth, timeout=TIMEOUT_S, verify=_trust(settings.ca_file)) as client:

            def ask(node: str) -> JobEvidence | str:
                if password and not endpoint.is_encrypted and not is_loopback(node):
                    return f"{node}: the password would cross the network unencrypted; use https:// in hand.helper"
                url = settings.url.replace("{node}", check_node(node)).rstrip("/") + "/evidence"
                return _ask(client, url, node, job, owner)

            asked_s = clock()
            # At the same time, so that the windows of all nodes overlap.
            with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as pool:
                answers = list(pool.map(ask, nodes[:MOST_NODES]))
        # The clocks of nodes may be wrong, so the clock of this service decides how long a finding holds.
        parts = [
            replace(answer, taken_s=asked_s, window_s=min(max(answer.window_s, 0.0), TIMEOUT_S))
            for answer in answers
            if isinstance(answer, JobEvidence)
        ]
        if not parts:
            errors = [answer for answer in answers if isinstance(answer, str)]
            raise SourceError(f"no helper gave evidence of job {job}: {', '.join(errors)[:200]}")
        return merge(parts, wanted_nodes=len(nodes))

    return take


def _ask(client: httpx.Client, url: str, node: str, job: str, owner: int) -> JobEvidence | str:
    """The evidence of one node, or why there is none."""
    import httpx

    deadline, params = SocketDeadline(), {"job": job, "owner": str(owner)}
    try:
        until_s = time.monotonic() + TIMEOUT_S
        with (
            deadline.within(TIMEOUT_S),
            client.stream("GET", url, params=params, headers=PLAIN, extensions=deadline.extensions) as answer,
        ):
            data = body_of(answer, MAX_BYTES, until_s)
        if answer.status_code != 200:
            return f"{node}: {answer.status_code}"
        part = parse_evidence(data, url)
    except (httpx.HTTPError, OSError) as error:
        return f"{node}: {'the answer took too long' if deadline.has_passed else type(error).__name__}"
    except SourceError as error:
        return f"{node}: {error}"
    except InputError as error:
        return f"{node}: {error.reason}"
    if part.job != job:
        return f"{node}: evidence of another job"
    # The evidence of a helper counts for its own node only, whatever node it names.
    return replace(part, nodes=(node,), processes=tuple(replace(process, node=node) for process in part.processes))


def _trust(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)
