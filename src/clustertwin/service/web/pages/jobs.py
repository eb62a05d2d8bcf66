"""Jobs: running jobs, highest score first; waiting jobs with their forecast starts; the report of one job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import JobState, ServiceState
from clustertwin.service.outgoing import job_report
from clustertwin.service.store.event_store import Filter
from clustertwin.service.web.channel_lines import job_channel_lines
from clustertwin.service.web.contract import Page, Search
from clustertwin.service.web.pages.rendering import render
from clustertwin.telemetry.detection.events.causes import cause_of
from clustertwin.telemetry.detection.events.event_title import information_text
from clustertwin.telemetry.moments.other_work import other_work

ROWS = 200
#: Nodes of a job whose channels are shown.
MOST_NODES = 24
#: Other work on a job's threads is shown from this part of their busy time on.
TAKEN = 0.05


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()

    @routes.get("/jobs")
    def show_list(request: Request, q: Search = "") -> HTMLResponse:
        words = set(q.lower().split())
        jobs = [job for job in state.snapshot.jobs if _has(_text(job), words)]
        board = state.starts
        waiting = [job for job in (board.waiting if board else ()) if _has(f"{job.job} {job.user}", words)]
        values: dict[str, Any] = {
            "board": board,
            "age_s": board.age_s(clock()) if board else 0.0,
            "waiting": waiting[:ROWS],
            "waiting_matches": len(waiting),
        }
        return render(request, state, PAGE, "jobs.html", jobs=jobs[:ROWS], matches=len(jobs), q=q, **values)

    @routes.get("/jobs/{job:path}")
    def show_job(request: Request, job: str) -> HTMLResponse:
        running = next((running for running in state.snapshot.jobs if running.job == job), None)
        cases = state.store.events(Filter(job=job), 50)
        usage = job_report.find_usage(state, job, cases)
        if running is None and usage is None and not cases:
            text = f"There is no running or recorded job {job}, and no event of one."
            return render(request, state, PAGE, "error.html", 404, title="Not found", text=text)
        report = job_report.render(usage) if usage else ""
        moment = state.snapshot.moment
        values: dict[str, Any] = {
            "channels": dict(list(job_channel_lines(moment, job).items())[:MOST_NODES]) if running else {},
            "forecasts": [each for each in state.snapshot.memory_forecasts if each.job == job],
            "information": [
                (each, information_text(each), cause_of(each.cause).next_step)
                for each in state.snapshot.information
                if each.job == job
            ],
            "taken": [work for work in other_work(moment) if work.job == job and work.taken > TAKEN] if moment else [],
        }
        return render(request, state, PAGE, "job.html", name=job, job=running, cases=cases, report=report, **values)

    return routes


PAGE = Page(title="Jobs", key="j", paths=("/jobs",), router=router)


def _text(job: JobState) -> str:
    """What a search for a job looks at."""
    return f"{job.job} {job.name} {job.owner} {job.account} {job.job_type} {' '.join(job.nodes)}"


def _has(text: str, words: set[str]) -> bool:
    text = text.lower()
    return all(word in text for word in words)
