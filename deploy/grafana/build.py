"""Generate the dashboards: the queries and texts in this file -> JSON files in dashboards/.

    python deploy/grafana/build.py             writes the files
    python deploy/grafana/build.py --check     fails if the files are out of date

*summary* shows whether anything is wrong with the cluster or with clustertwin itself; *detail* shows a node and a job.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

OUT = Path(__file__).parent / "dashboards"
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${source}")
GREEN, ORANGE, RED = "green", "orange", "red"


def query(expr: str, legend: str = "", now: bool = False) -> prometheus.Dataquery:
    """A query, over time or `now`. The answer for a table has one row for each series."""
    base = prometheus.Dataquery().datasource(SOURCE).expr(expr).legend_format(legend or "__auto")
    return base.instant().format(PromQueryFormat.TABLE) if now else base.range()


def colours(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    levels = [model.Threshold(value, colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(levels)


def number(title: str, about: str, expr: str, unit: str = "none", bad: float | None = None) -> stat.Panel:
    """A panel with one number, red from `bad`."""
    steps = [(None, GREEN)] if bad is None else [(None, GREEN), (bad, RED)]
    panel = stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(4).span(4)
    target = prometheus.Dataquery().datasource(SOURCE).expr(expr).instant().ref_id("A")
    return panel.thresholds(colours(*steps)).no_value("–").with_target(target)


def lines(
    title: str, about: str, *queries: prometheus.Dataquery, unit: str = "none", wide: int = 12
) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(8).span(wide)
    for ref, target in zip("ABCDE", queries, strict=False):
        panel = panel.with_target(target.ref_id(ref))
    return panel.line_width(1).fill_opacity(5).show_points("never")


def rows(title: str, about: str, expr: str, hidden: tuple[str, ...], value: str, wide: int = 24) -> table.Panel:
    """A table of series, highest value first."""
    tidy = {
        "excludeByName": dict.fromkeys(("Time", "__name__", "job", *hidden), True),
        "renameByName": {"Value": value},
    }
    order = {"fields": {}, "sort": [{"field": value, "desc": True}]}
    panel = table.Panel().title(title).description(about).datasource(SOURCE).height(9).span(wide)
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=tidy))
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="sortBy", options=order))
    for field, url in (
        ("event", "http://${service}/events/${__value.raw}"),
        ("node", "/d/clustertwin-detail?var-source=${source}&var-service=${service}&var-node=${__value.raw}"),
    ):
        link = {"title": f"this {field}", "url": url, "targetBlank": field == "event"}
        panel = panel.override_by_name(field, [model.DynamicConfigValue(id_val="links", value=[link])])
    return panel.no_value("none").with_target(query(expr, now=True).ref_id("A"))


def variable(name: str, label: str, values: str) -> dashboard.QueryVariable:
    query_variable = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(values)
    return query_variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)


def empty_board(uid: str, title: str, about: str) -> dashboard.Dashboard:
    board = dashboard.Dashboard(title).uid(uid).description(about).tags(["clustertwin"]).timezone("browser").readonly()
    board = board.refresh("10s").time("now-3h", "now").tooltip(model.DashboardCursorSync.CROSSHAIR)
    board = board.with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    service = variable("service", "service", "label_values(twin_build_info, instance)")
    links = dashboard.DashboardLink("clustertwin").type(model.DashboardLinkType.DASHBOARDS).tags(["clustertwin"])
    return board.with_variable(service).link(links.keep_time(True).as_dropdown(False))


S = 'instance="$service"'


def summary() -> dashboard.Dashboard:
    board = empty_board("clustertwin-summary", "clustertwin: summary", "The state of the cluster and of clustertwin.")
    board = board.with_row(dashboard.Row("Cluster"))
    for panel in (
        number(
            "Open events",
            "Including silenced and dismissed events.",
            f"sum(twin_events_open{{{S}}}) or vector(0)",
            bad=1,
        ),
        number(
            "Unusual nodes",
            "Nodes with a thread above the threshold.",
            f"twin:nodes_alarming:count{{{S}}}",
            bad=1,
        ),
        number("Nodes", "Nodes that have sent data.", f"twin:nodes:count{{{S}}}"),
        number(
            "Threads without a score",
            "No data, the first seconds of a job, or maintenance.",
            f'sum(twin_node_threads{{{S},state="unknown"}}) / sum(twin_node_threads{{{S}}})',
            "percentunit",
            0.5,
        ),
        number(
            "False alarms",
            "Share of the events with a verdict in the last seven days.",
            f"twin:false_alarms:ratio_week{{{S}}}",
            "percentunit",
            0.5,
        ),
        number(
            "Without a verdict",
            "Events of the last seven days without a verdict.",
            f'twin_events_week{{{S},verdict="none"}}',
        ),
        rows(
            "Open events",
            "Neither dismissed nor silenced; highest score first.",
            f"twin_event_score{{{S}}}",
            ("instance",),
            "score",
            14,
        ),
        rows(
            "Nodes with the highest scores",
            "The highest score of the node's threads.",
            f"topk(20, twin_node_score{{{S}}})",
            ("instance",),
            "score",
            10,
        ),
        lines(
            "Highest scores over time",
            "A node with a score above the threshold is unusual.",
            query(f"topk(10, twin_node_score{{{S}}})", "{{node}}"),
            query(f"twin_model_threshold{{{S}}}", "threshold"),
        ),
        lines(
            "Unusual threads",
            "Share of the threads of a node.",
            query(f"topk(10, twin:node_alarming:ratio{{{S}}} > 0)", "{{node}}"),
            unit="percentunit",
        ),
        lines(
            "Events",
            "Open events, and events opened in the last hour, by view.",
            query(f"twin_events_open{{{S}}}", "open, {{view}}"),
            query(f"increase(twin_events_opened_total{{{S}}}[1h])", "opened in 1 h, {{view}}"),
        ),
        lines(
            "Verdicts of the last seven days",
            "Events by verdict.",
            query(f"twin_events_week{{{S}}}", "{{verdict}}"),
        ),
    ):
        board = board.with_panel(panel)
    board = board.with_row(dashboard.Row("clustertwin"))
    for panel in (
        number("Problems", "They are listed at the top of its page.", f"twin_loop_problems{{{S}}}", bad=1),
        number("Lag", "Age of the newest data.", f"twin_loop_lag_seconds{{{S}}}", "s", 30),
        number(
            "Silent nodes",
            "Nodes without data for five minutes.",
            f"count(twin_node_staleness_seconds{{{S}}} > 300) or vector(0)",
            bad=1,
        ),
        number(
            "Learning",
            "0: nightly learning is on; 1: it is frozen or halted.",
            f'sum(twin_learning_state{{{S},state!="learning"}})',
            bad=1,
        ),
        number("Models refused", "Models that are damaged or unsuitable.", f"twin_models_refused_total{{{S}}}", bad=1),
        number("Messages waiting", "Messages that are not delivered yet.", f"twin_notifications_pending{{{S}}}", bad=1),
        lines(
            "Scoring",
            "Duration of a scoring, time between two scorings, and age of the newest data.",
            query(f"twin_loop_scoring_seconds{{{S}}}", "scoring"),
            query(f"twin_loop_stride_seconds{{{S}}}", "stride"),
            query(f"twin_loop_lag_seconds{{{S}}}", "lag"),
            unit="s",
            wide=8,
        ),
        lines(
            "Threads scored",
            "Per second.",
            query(f"rate(twin_loop_scored_threads_total{{{S}}}[1m])", "threads/s"),
            wide=8,
        ),
        lines(
            "Faulty samples",
            "Thread-seconds that are masked, and samples that are dropped.",
            query(f"rate(twin_sample_faults_total{{{S}}}[5m]) > 0", "{{fault}}"),
            wide=8,
        ),
        rows("Model", "The detector in service.", f"twin_model_info{{{S}}}", ("instance", "Value"), "score"),
    ):
        board = board.with_panel(panel)
    board = board.with_row(dashboard.Row("Actions"))
    for panel in (
        number("Actions", "Proposed, done, refused and dismissed.", f"sum(twin_actions{{{S}}}) or vector(0)"),
        number(
            "Node-hours saved",
            "Measured afterwards, of all actions.",
            f'twin_savings_node_hours{{{S},kind="measured"}}',
        ),
        lines(
            "Promised and measured savings",
            "Node-hours of the actions that are measured. Both lines should lie together.",
            query(f"twin_savings_node_hours{{{S}}}", "{{kind}}"),
            wide=16,
        ),
    ):
        board = board.with_panel(panel)
    return board


def detail() -> dashboard.Dashboard:
    board = empty_board("clustertwin-detail", "clustertwin: detail", "One node and one job.")
    board = board.with_variable(variable("node", "node", f"label_values(twin_node_threads{{{S}}}, node)"))
    board = board.with_variable(variable("jobid", "job", f"label_values(twin_job_score{{{S}}}, jobid)"))
    n, j = f'{S},node="$node"', f'{S},jobid="$jobid"'
    # Counters of the exporters: their instance is the node's address, and twin_node_info has its name.
    cpu = 'on (instance) group_left (node) twin_node_info{node="$node"}'
    board = board.with_row(dashboard.Row("Node $node"))
    for panel in (
        number("Score", "Highest score of its threads.", f"twin_node_score{{{n}}}"),
        number("Unusual threads", "Threads above the threshold.", f'twin_node_threads{{{n},state="alarming"}}', bad=1),
        number(
            "Threads without a score",
            "No data, the first seconds of a job, or maintenance.",
            f'twin_node_threads{{{n},state="unknown"}}',
        ),
        number("Reconstruction error", "Mean over its threads.", f"twin_node_error_ratio{{{n}}}", "percentunit"),
        number(
            "Last data",
            "Without data, the scores of the node are unknown.",
            f"twin_node_staleness_seconds{{{n}}}",
            "s",
            60,
        ),
        number("Open events", "Neither dismissed nor silenced.", f"count(twin_event_score{{{n}}}) or vector(0)", bad=1),
        lines(
            "Score",
            "Above the threshold, the node is unusual.",
            query(f"twin_node_score{{{n}}}", "score"),
            query(f"twin_model_threshold{{{S}}}", "threshold"),
        ),
        lines("Threads", "Threads by state.", query(f"twin_node_threads{{{n}}}", "{{state}}")),
        lines(
            "Modes",
            "Sum over all threads, from the exporter.",
            query(f"sum by (mode) (rate(twin_cpu_seconds_total[30s]) * {cpu})", "{{mode}}"),
            unit="short",
        ),
        lines(
            "I/O wait of each thread",
            "Seconds per second.",
            query(f'rate(twin_cpu_seconds_total{{mode="iowait"}}[30s]) * {cpu}', "cpu {{cpu}}"),
            unit="percentunit",
        ),
        lines(
            "Pressure",
            "Share of the time in which at least one task waits.",
            query(f'rate(twin_pressure_seconds_total{{share="some"}}[30s]) * {cpu}', "{{resource}}"),
            unit="percentunit",
        ),
        lines(
            "Memory available",
            "From the exporter.",
            query(f"twin_memory_available_bytes * {cpu}", "available"),
            unit="bytes",
        ),
        rows(
            "Open events of this node",
            "The page of an event has the explanation.",
            f"twin_event_score{{{n}}}",
            ("instance", "node"),
            "score",
        ),
    ):
        board = board.with_panel(panel)
    board = board.with_row(dashboard.Row("Job $jobid"))
    for panel in (
        lines(
            "Score",
            "Highest score of its threads.",
            query(f"twin_job_score{{{j}}}", "score"),
            query(f"twin_model_threshold{{{S}}}", "threshold"),
            wide=8,
        ),
        lines(
            "Reconstruction error",
            "Mean over its threads.",
            query(f"twin_job_error_ratio{{{j}}}", "error"),
            unit="percentunit",
            wide=8,
        ),
        lines(
            "CPU",
            "Busy cores, from the cgroups of the job.",
            query('sum by (mode) (rate(twin_job_cpu_seconds_total{jobid="$jobid"}[30s]))', "{{mode}}"),
            unit="short",
            wide=8,
        ),
    ):
        board = board.with_panel(panel)
    return board


def texts() -> dict[str, str]:
    """File name -> its JSON. The same source gives the same bytes."""
    documents = {}
    for name, board in (("summary.json", summary().build()), ("detail.json", detail().build())):
        for panel_number, panel in enumerate(board.panels or (), 1):
            panel.id_val = panel_number  # without an id, links to panels would break with every load
        documents[name] = JSONEncoder(sort_keys=True, indent=1).encode(board) + "\n"
    return documents


def main(arguments: list[str]) -> int:
    OUT.mkdir(exist_ok=True)
    stale = [name for name, text in texts().items() if not (OUT / name).exists() or (OUT / name).read_text() != text]
    if arguments == ["--check"]:
        sys.stderr.writelines(f"{OUT / name} is not up to date: run {__file__}\n" for name in stale)
        return bool(stale)
    for name, text in texts().items():
        (OUT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
