"""Jobs: those that run, strangest first; each with its own report."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import job_report
from clustertwin.service.store.event_store import Filter
from clustertwin.service.web.pages.rendering import render

ROWS = 200


def router(state: ServiceState) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    @pages.get("/jobs")
    def many(request: Request, q: str = "") -> HTMLResponse:
        words = q.lower().split()
        jobs = [
            job
            for job in state.snapshot.jobs
            if all(word in f"{job.job} {job.owner} {job.job_type} {' '.join(job.nodes)}".lower() for word in words)
        ]
        return render(request, state, "jobs.html", jobs=jobs[:ROWS], found=len(jobs), q=q)

    @pages.get("/jobs/{job:path}")
    def one(request: Request, job: str) -> HTMLResponse:
        found = next((one for one in state.snapshot.jobs if one.job == job), None)
        cases = state.store.events(Filter(job=job), 50)
        usage = job_report.usage_now(state.snapshot, job) or job_report.usage_past(state.past, job)
        if found is None and usage is None and not cases:
            what = f"No job {job} is running, none is recorded, and none has an event."
            return render(request, state, "missing.html", 404, what=what)
        report = job_report.render(usage) if usage else ""
        return render(request, state, "job.html", name=job, job=found, cases=cases, report=report)

    return pages
