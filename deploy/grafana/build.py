"""Build the dashboards: queries and words here -> provisioned JSON in dashboards/ beside this file.

    python deploy/grafana/build.py             writes them
    python deploy/grafana/build.py --check     fails where they are not what this file would write

*summary* answers "is anything wrong, and is the watcher well?"; *detail* answers "what about this node, this job?".
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
    """A question to Prometheus, over time or `now`; a table's answer has a row a series."""
    asked = prometheus.Dataquery().datasource(SOURCE).expr(expr).legend_format(legend or "__auto")
    return asked.instant().format(PromQueryFormat.TABLE) if now else asked.range()


def colours(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    levels = [model.Threshold(value, colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(levels)


def number(title: str, about: str, expr: str, unit: str = "none", bad: float | None = None) -> stat.Panel:
    """One number; red from `bad` on."""
    steps = [(None, GREEN)] if bad is None else [(None, GREEN), (bad, RED)]
    panel = stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(4).span(4)
    asked = prometheus.Dataquery().datasource(SOURCE).expr(expr).instant().ref_id("A")
    return panel.thresholds(colours(*steps)).no_value("–").with_target(asked)


def lines(title: str, about: str, *asked: prometheus.Dataquery, unit: str = "none", wide: int = 12) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(8).span(wide)
    for ref, one in zip("ABCDE", asked, strict=False):
        panel = panel.with_target(one.ref_id(ref))
    return panel.line_width(1).fill_opacity(5).show_points("never")


def rows(title: str, about: str, expr: str, hidden: tuple[str, ...], value: str, wide: int = 24) -> table.Panel:
    """A table of series, the highest value first."""
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
    return panel.no_value("nothing").with_target(query(expr, now=True).ref_id("A"))


def variable(name: str, label: str, values: str) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(values)
    return made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)


def begun(uid: str, title: str, about: str) -> dashboard.Dashboard:
    made = dashboard.Dashboard(title).uid(uid).description(about).tags(["clustertwin"]).timezone("browser").readonly()
    made = made.refresh("10s").time("now-3h", "now").tooltip(model.DashboardCursorSync.CROSSHAIR)
    made = made.with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    service = variable("service", "service", "label_values(twin_build_info, instance)")
    links = dashboard.DashboardLink("clustertwin").type(model.DashboardLinkType.DASHBOARDS).tags(["clustertwin"])
    return made.with_variable(service).link(links.keep_time(True).as_dropdown(False))


S = 'instance="$service"'


def summary() -> dashboard.Dashboard:
    made = begun("clustertwin-summary", "clustertwin: summary", "Is anything wrong, and is the watcher well?")
    made = made.with_row(dashboard.Row("The cluster"))
    for panel in (
        number("Open events", "Silenced and dismissed ones too.", f"sum(twin_events_open{{{S}}}) or vector(0)", bad=1),
        number(
            "Nodes alarming",
            "Their strangest thread is above the threshold.",
            f"twin:nodes_alarming:count{{{S}}}",
            bad=1,
        ),
        number("Nodes watched", "Of which anything was ever heard.", f"twin:nodes:count{{{S}}}"),
        number(
            "Threads unknown",
            "No score: no data, a job's edge, or maintenance.",
            f'sum(twin_node_threads{{{S},state="unknown"}}) / sum(twin_node_threads{{{S}}})',
            "percentunit",
            0.5,
        ),
        number(
            "False alarms",
            "Of the events that people vetted in seven days.",
            f"twin:false_alarms:ratio_week{{{S}}}",
            "percentunit",
            0.5,
        ),
        number("Not vetted", "Events of seven days that wait for a person.", f'twin_events_week{{{S},verdict="none"}}'),
        rows(
            "Open events to look at",
            "Neither dismissed nor silenced; the strangest first.",
            f"twin_event_score{{{S}}}",
            ("instance",),
            "score",
            14,
        ),
        rows(
            "Strangest nodes",
            "The score of their strangest thread.",
            f"topk(20, twin_node_score{{{S}}})",
            ("instance",),
            "score",
            10,
        ),
        lines(
            "Strangest nodes over time",
            "Scores above the threshold alarm.",
            query(f"topk(10, twin_node_score{{{S}}})", "{{node}}"),
            query(f"twin_model_threshold{{{S}}}", "threshold"),
        ),
        lines(
            "Threads alarming",
            "Of all threads of a node.",
            query(f"topk(10, twin:node_alarming:ratio{{{S}}} > 0)", "{{node}}"),
            unit="percentunit",
        ),
        lines(
            "Events",
            "Open, and opened in an hour, by the view that saw them.",
            query(f"twin_events_open{{{S}}}", "open, {{view}}"),
            query(f"increase(twin_events_opened_total{{{S}}}[1h])", "opened in 1 h, {{view}}"),
        ),
        lines(
            "Verdicts of seven days",
            "What people said of the events.",
            query(f"twin_events_week{{{S}}}", "{{verdict}}"),
        ),
    ):
        made = made.with_panel(panel)
    made = made.with_row(dashboard.Row("The watcher"))
    for panel in (
        number("Problems", "They stand at the head of its page.", f"twin_loop_problems{{{S}}}", bad=1),
        number("Behind", "From the newest second heard of to now.", f"twin_loop_lag_seconds{{{S}}}", "s", 30),
        number(
            "Silent nodes",
            "Not heard of for five minutes.",
            f"count(twin_node_staleness_seconds{{{S}}} > 300) or vector(0)",
            bad=1,
        ),
        number(
            "Learning",
            "0 while it learns at night, 1 while frozen or halted.",
            f'sum(twin_learning_state{{{S},state!="learning"}})',
            bad=1,
        ),
        number("Models refused", "Damaged or unfit, and not taken.", f"twin_models_refused_total{{{S}}}", bad=1),
        number("Messages waiting", "Not delivered yet.", f"twin_notifications_pending{{{S}}}", bad=1),
        lines(
            "Scoring",
            "How long it takes, and how often it is done.",
            query(f"twin_loop_scoring_seconds{{{S}}}", "scoring"),
            query(f"twin_loop_stride_seconds{{{S}}}", "stride"),
            query(f"twin_loop_lag_seconds{{{S}}}", "lag"),
            unit="s",
            wide=8,
        ),
        lines(
            "Threads scored",
            "In a second.",
            query(f"rate(twin_loop_scored_threads_total{{{S}}}[1m])", "threads/s"),
            wide=8,
        ),
        lines(
            "Samples at fault",
            "Thread-seconds that were masked, or samples dropped.",
            query(f"rate(twin_sample_faults_total{{{S}}}[5m]) > 0", "{{fault}}"),
            wide=8,
        ),
        rows("The model", "The detector that scores now.", f"twin_model_info{{{S}}}", ("instance", "Value"), "score"),
    ):
        made = made.with_panel(panel)
    return made


def detail() -> dashboard.Dashboard:
    made = begun("clustertwin-detail", "clustertwin: detail", "What about this node, this job?")
    made = made.with_variable(variable("node", "node", f"label_values(twin_node_threads{{{S}}}, node)"))
    made = made.with_variable(variable("jobid", "job", f"label_values(twin_job_score{{{S}}}, jobid)"))
    n, j = f'{S},node="$node"', f'{S},jobid="$jobid"'
    # The exporters' own counters: their instance is the node's address, and twin_node_info knows its name.
    cpu = 'on (instance) group_left (node) twin_node_info{node="$node"}'
    made = made.with_row(dashboard.Row("Node $node"))
    for panel in (
        number("Score", "Of its strangest thread.", f"twin_node_score{{{n}}}"),
        number("Threads alarming", "Above the threshold.", f'twin_node_threads{{{n},state="alarming"}}', bad=1),
        number("Threads unknown", "No score.", f'twin_node_threads{{{n},state="unknown"}}'),
        number("Reconstruction error", "Mean over its threads.", f"twin_node_error_ratio{{{n}}}", "percentunit"),
        number(
            "Last heard of", "Its scores are unknown when it is silent.", f"twin_node_staleness_seconds{{{n}}}", "s", 60
        ),
        number("Open events", "Neither dismissed nor silenced.", f"count(twin_event_score{{{n}}}) or vector(0)", bad=1),
        lines(
            "Score",
            "Above the threshold it alarms.",
            query(f"twin_node_score{{{n}}}", "score"),
            query(f"twin_model_threshold{{{S}}}", "threshold"),
        ),
        lines("Threads", "By what their scores say.", query(f"twin_node_threads{{{n}}}", "{{state}}")),
        lines(
            "Modes",
            "All its threads together, from the exporter.",
            query(f"sum by (mode) (rate(twin_cpu_seconds_total[30s]) * {cpu})", "{{mode}}"),
            unit="short",
        ),
        lines(
            "I/O wait of each thread",
            "Seconds a second.",
            query(f'rate(twin_cpu_seconds_total{{mode="iowait"}}[30s]) * {cpu}', "cpu {{cpu}}"),
            unit="percentunit",
        ),
        lines(
            "Pressure",
            "Part of the time in which some task waited.",
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
            "Its open events",
            "Their pages give the reasons.",
            f"twin_event_score{{{n}}}",
            ("instance", "node"),
            "score",
        ),
    ):
        made = made.with_panel(panel)
    made = made.with_row(dashboard.Row("Job $jobid"))
    for panel in (
        lines(
            "Score",
            "Of its strangest thread on any node.",
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
            "Cores it keeps busy, from its cgroups.",
            query('sum by (mode) (rate(twin_job_cpu_seconds_total{jobid="$jobid"}[30s]))', "{{mode}}"),
            unit="short",
            wide=8,
        ),
    ):
        made = made.with_panel(panel)
    return made


def texts() -> dict[str, str]:
    """File name -> its JSON, the same bytes for the same source."""
    written = {}
    for name, made in (("summary.json", summary().build()), ("detail.json", detail().build())):
        for number_of, panel in enumerate(made.panels or (), 1):
            panel.id_val = number_of  # left to Grafana they would change with every load, and links to panels with them
        written[name] = JSONEncoder(sort_keys=True, indent=1).encode(made) + "\n"
    return written


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
