"""Try a change: other weights, nodes added or drained -> when the jobs that wait now would start."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.live.queue.change_desk import ChangeForm, DeskBusy
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render
from clustertwin.workload.slurm.site.slurm_site import PRIORITY_WEIGHTS

ROWS = 100
Weight = Annotated[str, Form(max_length=12, pattern=r"^\d{0,10}$")]
Nodes = Annotated[str, Form(max_length=1000, pattern=r"^[\w.,\[\]-]*$")]


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()

    def page(request: Request, code: int = 200, **values: Any) -> HTMLResponse:
        values = {"result": None, "problem": "", "form": {}, **values}
        shown = {"desk": state.changes, "weights": PRIORITY_WEIGHTS, "rows": ROWS}
        return render(request, state, PAGE, "try_change.html", code, **shown, **values)

    @routes.get("/try")
    def show(request: Request) -> HTMLResponse:
        return page(request)

    @routes.post("/try")
    def compare(
        request: Request, age: Weight = "", fair_share: Weight = "", job_size: Weight = "", partition: Weight = "",
        qos: Weight = "", add_nodes: Annotated[str, Form(max_length=5, pattern=r"^\d{0,5}$")] = "", drain: Nodes = "",
    ) -> HTMLResponse:  # fmt: skip
        if state.changes is None:
            raise HTTPException(404, "no site is known; set queue.site in the configuration")
        asked = {"age": age, "fair_share": fair_share, "job_size": job_size, "partition": partition, "qos": qos}
        form = {**asked, "add_nodes": add_nodes, "drain": drain}
        weights = {name: float(text) for name, text in asked.items() if text}
        try:
            result = state.changes.compare(ChangeForm(weights, int(add_nodes or 0), drain=drain))
        except DeskBusy as error:
            return page(request, 429, form=form, problem=str(error))
        except (SettingsError, SourceError) as error:
            return page(request, 422, form=form, problem=f"There is no answer: {error}")
        return page(request, result=result, form=form)

    return routes


PAGE = Page(title="Try a change", key="t", paths=("/try",), router=router, read_role="vet", change_role="vet")
