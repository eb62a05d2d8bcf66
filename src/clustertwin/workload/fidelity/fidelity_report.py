"""Scorecards and compared logs -> one self-contained HTML page: no script, no network, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from clustertwin.page import COLOURS, page, table
from clustertwin.workload.fidelity.fidelity_plots import arrival_plots, distributions, heat_maps
from clustertwin.workload.fidelity.fidelity_words import in_words
from clustertwin.workload.fidelity.measures.compared_log import COMPARED, ComparedLog, with_nodes
from clustertwin.workload.fidelity.measures.concurrency import concurrency_notes
from clustertwin.workload.fidelity.measures.scheduling_effect import RULES
from clustertwin.workload.fidelity.scorecard import Scorecard

#: The heading of a report column, and the function that gives its cell.
Column = tuple[str, Callable[[Scorecard], object]]


def report(real: ComparedLog, synthetic: Sequence[ComparedLog], cards: Sequence[Scorecard]) -> str:
    """The page. `cards` come from `compare`: the yardsticks first, then one card per synthetic log."""
    synthetic, yardsticks = [with_nodes(log, real) for log in synthetic], len(cards) - len(synthetic)
    # Formats differ in their columns: a column is shown if any of the logs has it.
    names = tuple(name for name in COMPARED if any(name in card.columns for card in cards[yardsticks:]))
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in [(real.name, "var(--ink)"),
                             *((log.name, COLOURS[i % len(COLOURS)]) for i, log in enumerate(synthetic))]
    )  # fmt: skip
    on = cards[0].machine
    parts = [
        f"<h1>{escape(real.name)}: {len(real):,} jobs, compared with "
        f"{', '.join(escape(log.name) for log in synthetic)}</h1>",
        *(f"<h2>{escape(card.name)} in short</h2><ul>{_items(in_words(card))}</ul>" for card in cards[yardsticks:]),
        "<h2>How to read the tables</h2><p class=note>Shaded rows are yardsticks: two halves of the real log "
        "compared with each other, and the IID bootstrap, which draws real jobs independently (exact columns, no "
        "order, every job a copy). No generator needs to be closer than the rows that compare real with real.</p>",
        "<h2>Distributions: KS complement</h2><p class=note>1 is the same distribution. In brackets: the Wasserstein "
        "distance of logarithms; 0 is the same distribution.</p>",
        _table(cards, yardsticks, [(name, _marginal(name)) for name in names]),
        f"<p class=key>{key}</p>", distributions(real, synthetic, names),
        "<h2>Correlation between columns</h2>", _table(cards, yardsticks, _CORRELATION),
        heat_maps(real, synthetic, names),
        "<h2>Arrivals</h2><p class=note>Lag: rank autocorrelation of intervals. Fano: variance over mean of the number "
        "of jobs in windows of 5, 20 or 100 mean intervals. Real values in brackets.</p>",
        _table(cards, yardsticks, _ARRIVALS), f"<p class=key>{key}</p>", arrival_plots(real, synthetic),
        "<h2>Jobs and users</h2>", _table(cards, yardsticks, _JOBS), _broken(cards[yardsticks:]),
        _concurrency(cards[yardsticks:]),
        "<h2>Can a classifier separate the logs?</h2><p class=note>Area under the ROC curve: 0.5 is chance, 1 is "
        "perfect separation. Copies: jobs that equal a real job in everything except the arrival.</p>",
        _table(cards, yardsticks, _SEPARATION), _samples(cards[yardsticks:]),
        "<h2>What does an attacker learn?</h2><p class=note>AUC of each attack, then the share of true claims that it "
        "finds at 1 % false positives; in brackets the AUC of the same attack on real jobs of other people, which is "
        "habit and not a leak. Chance is 0.5 and 1 %. Near copies lie within an hour of a real job of the same size, "
        "limit and ±10 % run time; in brackets the same after a shift of a week.</p>",
        _table(cards, yardsticks, _ATTACKS),
        f"<h2>Simulated schedules</h2><p class=note>On {on.procs} {on.unit}, starting with an empty machine; real log "
        "in brackets. Waits are means in seconds; slowdowns are bounded at 10 s.</p>",
        _table(cards, yardsticks, _SCHEDULER),
    ]  # fmt: skip
    return page(f"{real.name}: fidelity", "".join(parts))


def _items(sentences: Sequence[str]) -> str:
    lines = (re.sub("`(.*?)`", r"<code>\1</code>", escape(sentence)) for sentence in sentences)
    return "".join(f"<li>{line}</li>" for line in lines)


def _table(cards: Sequence[Scorecard], yardsticks: int, columns: Sequence[Column]) -> str:
    rows = [(card.name, *(cell(card) for _, cell in columns)) for card in cards]
    return table(["", *(label for label, _ in columns)], rows, yardsticks)


def _marginal(name: str) -> Callable[[Scorecard], str]:
    def cell(card: Scorecard) -> str:
        score = card.marginals.get(name)
        return f"{score.ks_complement:.3f} ({score.wasserstein_log:.2f})" if score else ""

    return cell


def _both(synthetic: float, real: float, form: str = ".2f") -> str:
    return f"{synthetic:{form}} ({real:{form}})"


def _rule(rule: str, figure: str, form: str) -> Callable[[Scorecard], str]:
    def cell(card: Scorecard) -> str:
        schedules = card.scheduler[rule]
        return _both(getattr(schedules.synthetic, figure), getattr(schedules.real, figure), form)

    return cell


def _attack(name: str) -> Callable[[Scorecard], str]:
    def cell(card: Scorecard) -> str:
        result = getattr(card.attacks, name)
        if not result.synthetic.true_claims:
            return "not measured"
        return f"{result.synthetic.auc:.3f}, {result.synthetic.tpr_at_1pct_fpr:.0%} ({result.holdout.auc:.3f})"

    return cell


_CORRELATION: list[Column] = [
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
    ("hour distance", lambda card: f"{card.arrivals.hour_distance:.2f}"),
    ("weekday distance", lambda card: f"{card.arrivals.weekday_distance:.2f}"),
    ("offered load", lambda card: _both(card.load.synthetic, card.load.real)),
]
_JOBS: list[Column] = [
    ("valid jobs", lambda card: f"{card.validity.share:.1%}"),
    ("users", lambda card: _both(card.users.synthetic.users, card.users.real.users, "d")),
    ("inequality (Gini)", lambda card: _both(card.users.synthetic.gini, card.users.real.gini)),
    ("next job by same user", lambda card: _both(card.users.synthetic.same_user, card.users.real.same_user)),
    ("of these, same job", lambda card: _both(card.users.synthetic.same_job, card.users.real.same_job)),
    ("jobs in a row", lambda card: _both(card.users.synthetic.session_jobs, card.users.real.session_jobs, ".1f")),
]
_SEPARATION: list[Column] = [
    ("AUC, rows", lambda card: f"{card.c2st.row_auc:.3f}"),
    ("AUC, judge", lambda card: f"{card.c2st.judge_auc:.3f}"),
    ("AUC, windows of 16", lambda card: f"{card.c2st.window_auc:.3f}"),
    ("copies (hold-out)", lambda card: _both(card.privacy.copy_rate, card.privacy.copy_rate_holdout, ".3f")),
    ("closest, median (hold-out)",
     lambda card: _both(card.privacy.closest_median, card.privacy.closest_median_holdout, ".3f")),
]  # fmt: skip
_ATTACKS: list[Column] = [
    *((label, _attack(name)) for label, name in (
        ("this user on that day", "user_days"), ("this job", "single_jobs"), ("shift undone", "shifted_jobs"),
        ("published job has an original", "nearest_jobs"), ("users", "user_names"), ("projects", "project_names"))),
    ("near copies", lambda card: _both(card.attacks.near_copies.share, card.attacks.near_copies.share_shifted)),
    ("copies at the best shift", lambda card: f"{card.attacks.shifted_copies.share:.1%} "
                                              f"({card.attacks.shifted_copies.weeks} weeks)"),
    ("names published", lambda card: f"{card.attacks.names_published:.0%}"),
]  # fmt: skip
_SCHEDULER: list[Column] = [
    (f"{rule} {label}", _rule(rule, figure, form))
    for rule in RULES
    for label, figure, form in (("wait", "wait_s", ",.0f"), ("slowdown", "bounded_slowdown", ",.1f"),
                                ("utilisation", "utilisation_ratio", ".2f"))
]  # fmt: skip


def _concurrency(cards: Sequence[Scorecard]) -> str:
    """What is impossible about the submit times."""
    notes = dict.fromkeys(note for card in cards for note in concurrency_notes(card.concurrency, card.machine))
    return "".join(f"<p class=note><b>{escape(note)}</b></p>" for note in notes)


def _samples(cards: Sequence[Scorecard]) -> str:
    """Which jobs of large logs were looked at."""
    notes = dict.fromkeys(note for card in cards for note in card.sample.notes())
    return "".join(f"<p class=note>{escape(note)}</p>" for note in notes)


def _broken(cards: Sequence[Scorecard]) -> str:
    """The rules that invalid jobs break."""
    items = [
        f"<li>{escape(card.name)}: " + ", ".join(f"{escape(rule)} ({n})" for rule, n in card.validity.broken.items())
        for card in cards
        if card.validity.broken
    ]
    return (
        f"<p class=note>Broken rules of the real log, with the number of jobs:</p><ul>{''.join(items)}</ul>"
        if items
        else ""
    )
