"""Scorecards and samples -> one self-contained HTML page: no script, no network, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from clustertwin.page import COLOURS, page
from clustertwin.workload.fidelity.pictures import arrival_plots, distributions, heat_maps
from clustertwin.workload.fidelity.sample import COMPARED, Sample, in_nodes_too
from clustertwin.workload.fidelity.scheduler import RULES
from clustertwin.workload.fidelity.scorecard import Scorecard

Column = tuple[str, Callable[[Scorecard], object]]


def report(real: Sample, synthetic: Sequence[Sample], cards: Sequence[Scorecard]) -> str:
    """The page. `cards` are those of `compare`: the yardsticks, then one for each synthetic log."""
    synthetic, yardsticks = [in_nodes_too(log, real) for log in synthetic], len(cards) - len(synthetic)
    # Formats differ in what they can say: a column is shown if any of the logs has it.
    names = tuple(name for name in COMPARED if any(name in card.columns for card in cards[yardsticks:]))
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in [(real.name, "var(--ink)"),
                             *((s.name, COLOURS[i % len(COLOURS)]) for i, s in enumerate(synthetic))]
    )  # fmt: skip
    on = cards[0].machine
    parts = [
        f"<h1>{escape(real.name)}: {len(real)} jobs, beside {', '.join(escape(s.name) for s in synthetic)}</h1>",
        "<p class=note>Shaded rows are yardsticks: what two halves of the real log score against each other, and what "
        "jobs drawn one by one score: perfect columns, no order, every job a copy.</p>",
        "<h2>Distributions: KS complement</h2><p class=note>1 is the same distribution; in brackets the Wasserstein "
        "distance of logarithms, 0 is the same.</p>",
        _table(cards, yardsticks, [(name, _marginal(name)) for name in names]),
        f"<p class=key>{key}</p>", distributions(real, synthetic, names),
        "<h2>Columns together</h2>", _table(cards, yardsticks, _TOGETHER), heat_maps(real, synthetic, names),
        "<h2>Arrivals</h2><p class=note>Rank autocorrelation of intervals; Fano: variance over mean of the jobs in "
        "windows of so many mean intervals. Real in brackets.</p>",
        _table(cards, yardsticks, _ARRIVALS), f"<p class=key>{key}</p>", arrival_plots(real, synthetic),
        "<h2>Jobs and their users</h2>", _table(cards, yardsticks, _JOBS), _broken(cards[yardsticks:]),
        "<h2>Can it be told from the real log?</h2><p class=note>Area under the ROC curve of a classifier: 0.5 it "
        "cannot tell, 1 it always can. Copies: jobs that are, but for their arrival, equal to a real one.</p>",
        _table(cards, yardsticks, _APART),
        f"<h2>What a scheduler sees</h2><p class=note>On {on.procs} {on.unit}, from an empty machine; real in "
        "brackets. Waits are means in seconds, slowdowns bounded at 10 s.</p>",
        _table(cards, yardsticks, _SCHEDULER),
    ]  # fmt: skip
    return page(f"{real.name}: fidelity", "".join(parts))


def _table(cards: Sequence[Scorecard], yardsticks: int, columns: Sequence[Column]) -> str:
    head = "".join(f"<th>{escape(label)}</th>" for label in ("", *(label for label, _ in columns)))
    rows = []
    for i, card in enumerate(cards):
        cells = "".join(f"<td>{escape(str(cell(card)))}</td>" for _, cell in columns)
        rows.append(f"<tr{' class=yard' if i < yardsticks else ''}><td>{escape(card.name)}</td>{cells}</tr>")
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _marginal(name: str) -> Callable[[Scorecard], str]:
    def cell(card: Scorecard) -> str:
        score = card.marginals.get(name)
        return f"{score.ks_complement:.3f} ({score.wasserstein_log:.2f})" if score else ""

    return cell


def _both(synthetic: float, real: float, form: str = ".2f") -> str:
    return f"{synthetic:{form}} ({real:{form}})"


def _rule(rule: str, figure: str, form: str) -> Callable[[Scorecard], str]:
    def cell(card: Scorecard) -> str:
        under = card.scheduler[rule]
        return _both(getattr(under.synthetic, figure), getattr(under.real, figure), form)

    return cell


_TOGETHER: list[Column] = [
    ("rank correlation gap", lambda card: f"{card.correlation.gap:.3f}"),
    ("Pearson gap", lambda card: f"{card.correlation.pearson_gap:.3f}"),
    ("pair score", lambda card: f"{card.correlation.similarity:.3f}"),
]
_ARRIVALS: list[Column] = [
    ("lag 1", lambda card: _both(card.arrivals.autocorrelation[1], card.arrivals.autocorrelation_real[1])),
    ("lag 10", lambda card: _both(card.arrivals.autocorrelation[10], card.arrivals.autocorrelation_real[10])),
    ("Fano 5", lambda card: _both(card.arrivals.fano[5], card.arrivals.fano_real[5], ".1f")),
    ("Fano 20", lambda card: _both(card.arrivals.fano[20], card.arrivals.fano_real[20], ".1f")),
    ("Fano 100", lambda card: _both(card.arrivals.fano[100], card.arrivals.fano_real[100], ".1f")),
    ("hours apart", lambda card: f"{card.arrivals.hour_distance:.2f}"),
    ("weekdays apart", lambda card: f"{card.arrivals.weekday_distance:.2f}"),
    ("offered load", lambda card: _both(card.load.synthetic, card.load.real)),
]
_JOBS: list[Column] = [
    ("valid jobs", lambda card: f"{card.validity.share:.1%}"),
    ("users", lambda card: _both(card.users.synthetic.users, card.users.real.users, "d")),
    ("inequality (Gini)", lambda card: _both(card.users.synthetic.gini, card.users.real.gini)),
    ("same user next", lambda card: _both(card.users.synthetic.same_user, card.users.real.same_user)),
    ("and the same job", lambda card: _both(card.users.synthetic.same_job, card.users.real.same_job)),
    ("jobs in a row", lambda card: _both(card.users.synthetic.session_jobs, card.users.real.session_jobs, ".1f")),
]
_APART: list[Column] = [
    ("AUC, rows", lambda card: f"{card.c2st.row_auc:.3f}"),
    ("AUC, windows of 16", lambda card: f"{card.c2st.window_auc:.3f}"),
    ("copies (hold-out)", lambda card: _both(card.privacy.copy_rate, card.privacy.copy_rate_holdout, ".3f")),
    ("closest, median (hold-out)",
     lambda card: _both(card.privacy.closest_median, card.privacy.closest_median_holdout, ".3f")),
]  # fmt: skip
_SCHEDULER: list[Column] = [
    (f"{rule} {label}", _rule(rule, figure, form))
    for rule in RULES
    for label, figure, form in (("wait", "wait_s", ",.0f"), ("slowdown", "bounded_slowdown", ",.1f"),
                                ("utilisation", "utilisation_ratio", ".2f"))
]  # fmt: skip


def _broken(cards: Sequence[Scorecard]) -> str:
    """Why jobs are not valid."""
    items = [
        f"<li>{escape(card.name)}: " + ", ".join(f"{escape(rule)} ({n})" for rule, n in card.validity.broken.items())
        for card in cards
        if card.validity.broken
    ]
    return (
        f"<p class=note>Rules of the real log that are broken, with the number of jobs:</p><ul>{''.join(items)}</ul>"
        if items
        else ""
    )
