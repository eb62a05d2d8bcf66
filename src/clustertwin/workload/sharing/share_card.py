"""A shared log -> its card, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from clustertwin import __version__
from clustertwin.workload.privacy import Attacks
from clustertwin.workload.privacy.attack_score import AttackResult
from clustertwin.workload.sharing.share_log import SharedLog

FORMAT = 1
#: attack -> the question that it answers
QUESTIONS = {
    "user_days": "did this user work on that day?",
    "single_jobs": "was this job in the log?",
    "shifted_jobs": "the same, after a shift by whole weeks was undone",
    "nearest_jobs": "has this published job a real original?",
    "user_names": "which published user is this person?",
    "project_names": "which published project is this one?",
}
NOT_COVERED = (
    "These figures compare the shared log with the real one. The guarantee does not cover them: they state the real "
    "log's jobs, its mean wait, its load and the success of attacks without noise."
)

FAR_RATIO = 2.0
MOSTLY_NOISE = (
    "The real log has too few users for this ε: most counts behind the synthetic log are noise. A longer log with more "
    "users, or a larger ε, makes it closer."
)


def card_document(shared: SharedLog, with_figures: bool = True) -> dict[str, Any]:
    """The card as plain values for JSON. Without figures, everything in it is covered by the guarantee."""
    model, guarantee = shared.model, shared.model.guarantee
    finite = bool(np.isfinite(guarantee.epsilon))
    document: dict[str, Any] = {
        "format": FORMAT,
        "clustertwin": __version__,
        "generator": "private",
        "guarantee": {
            "kind": "user-level (epsilon, delta) differential privacy" if finite else "none: the noise is switched off",
            "epsilon": guarantee.epsilon if finite else None,
            "delta": guarantee.delta if finite else None,
            "unit": guarantee.unit,
            "accountant": "Renyi differential privacy, Opacus",
            "noise_multipliers": guarantee.noise_multipliers,
            "mostly_noise": model.mostly_noise,
        },
        "public_facts": {**asdict(model.facts), "machine": model.grid.machine, "has_limits": model.grid.with_limits,
                         "load": model.released.load if guarantee.load_is_public else None},
        "published": {"jobs": len(shared.jobs), "users": len(np.unique(shared.jobs.user)), "seed": shared.settings.seed,
                      "days": float(np.ptp(shared.jobs.submit_s) / 86400)},
    }  # fmt: skip
    if with_figures:
        document["figures_are_covered_by_the_guarantee"] = False
        document["left_out_jobs"] = shared.removed
        document["fidelity"] = shared.fidelity.document()
        held_out = shared.held_out
        document["held_out"] = None if held_out is None else {"users": held_out.users, "jobs": held_out.jobs}
        document["attacks"] = None if held_out is None else asdict(held_out.attacks)
    return document


def card_text(shared: SharedLog, with_figures: bool = True) -> str:
    """The card in Markdown."""
    jobs, facts = shared.jobs, shared.model.facts
    days = float(np.ptp(jobs.submit_s) / 86400)
    far = far_from_real(shared) if with_figures else []
    parts = [
        "# A synthetic job log\n",
        f"{len(jobs):,} synthetic jobs of {len(np.unique(jobs.user)):,} synthetic users in {days:.0f} days, on "
        f"{shared.model.grid.machine:,} {facts.unit}. No row, user or project of the real log is in it.\n",
        *(f"**{note}** The guarantee does not cover this sentence.\n" for note in far),
        "| file | content |\n|---|---|\n"
        "| `log.swf`, `log.parquet` | the synthetic log |\n"
        "| `model/` | the model that made it: released counts and facts (JSON and npz, no code) |\n"
        "| `card.json` | this card for programs |\n",
        "## The promise\n", _promise(shared), _public(shared),
    ]  # fmt: skip
    if shared.model.mostly_noise:
        parts.append(MOSTLY_NOISE + "\n")
    if with_figures:
        parts += ["## How close is it?\n", NOT_COVERED + "\n", _fidelity(shared), "## What do attacks find?\n",
                  _attacks(shared)]  # fmt: skip
    return "\n".join(parts)


def far_from_real(shared: SharedLog) -> list[str]:
    """Sentences if the number of jobs or the mean wait is not even of the right order."""
    easy = shared.fidelity.scheduler["EASY"]
    ratios = {"the jobs": len(shared.jobs) / shared.real_jobs}
    notes = []
    if shared.fidelity.concurrency.real_submits_are_starts:
        notes = ["The submit times of the real log are start times, so its waits cannot be compared."]
    else:
        ratios["the mean simulated wait"] = max(easy.synthetic.wait_s, 1.0) / max(easy.real.wait_s, 1.0)
    far = [
        f"{ratio:,.0f} times {what}" if ratio >= 10 else f"{ratio:.2g} times {what}"
        for what, ratio in ratios.items()
        if not 1 / FAR_RATIO <= ratio <= FAR_RATIO
    ]
    if not far:
        return notes
    return [
        *notes,
        f"This log has {' and '.join(far)} of the real one. Do not draw conclusions about the site from it. A longer "
        "log with more users, a larger ε, or a public load (--public-load) makes it closer.",
    ]


def _promise(shared: SharedLog) -> str:
    guarantee = shared.model.guarantee
    if not np.isfinite(guarantee.epsilon):
        return "**None.** The noise is switched off (ε = ∞): treat this directory like the real log.\n"
    return (
        f"User-level (ε, δ) differential privacy with ε = {guarantee.epsilon:.3g} and δ = {guarantee.delta:.3g}. The "
        f"protected unit is {guarantee.unit}: whatever somebody concludes from these files would have been at most "
        "e^ε times as likely without all the jobs of one unit, except with a probability of about δ. The accountant is "
        "that of Opacus (Rényi differential privacy). Noise is drawn from the operating system in floating-point "
        "arithmetic, and is not hardened against attacks on its rounding. Every further model of the same log spends "
        "its own ε, and the sum counts.\n"
    )


def _public(shared: SharedLog) -> str:
    facts = shared.model.facts
    load = ", the offered load" if shared.model.guarantee.load_is_public else ""
    return (
        "Taken from the log without noise, as public facts: the name and the size of the machine, cpus per node, the "
        f"first day and the number of days ({facts.days}), the time zone, which columns it has{load}. Busy and quiet "
        "weeks and the reaction of users to long queues are assumptions of the model, the same for all logs.\n"
    )


def _fidelity(shared: SharedLog) -> str:
    card = shared.fidelity
    easy = card.scheduler["EASY"]
    rows = [
        ("jobs", f"{shared.real_jobs:,}", f"{len(shared.jobs):,}"),
        ("offered load", f"{card.load.real:.3f}", f"{card.load.synthetic:.3f}"),
        ("mean wait under EASY, s (simulated)", f"{easy.real.wait_s:,.0f}", f"{easy.synthetic.wait_s:,.0f}"),
        ("bounded slowdown under EASY (simulated)", f"{easy.real.bounded_slowdown:,.1f}",
         f"{easy.synthetic.bounded_slowdown:,.1f}"),
        ("rank autocorrelation of intervals, lag 1", f"{card.arrivals.autocorrelation_real[1]:.2f}",
         f"{card.arrivals.autocorrelation[1]:.2f}"),
        ("Fano factor, 20 intervals", f"{card.arrivals.fano_real[20]:.1f}", f"{card.arrivals.fano[20]:.1f}"),
        *((f"KS complement, {name}", "1", f"{score.ks_complement:.3f}") for name, score in card.marginals.items()),
        ("classifier AUC, rows", "0.5", f"{card.c2st.row_auc:.3f}"),
        ("classifier AUC, windows of 16 jobs", "0.5", f"{card.c2st.window_auc:.3f}"),
        ("valid jobs", "100 %", f"{card.validity.share:.1%}"),
    ]  # fmt: skip
    return _table(("", "real log, or ideal", "shared log"), rows)


def _attacks(shared: SharedLog) -> str:
    if shared.held_out is None:
        return "Not measured: the log has too few users to hold some of them out.\n"
    part = (
        f"Held out: every second user in the order of the log ({shared.held_out.users} units, "
        f"{shared.held_out.jobs:,} jobs), and then the other half. Each attacked model has the same settings and was "
        "fitted to the half that was not held out; the figures are the mean of both. "
        "Chance is an AUC of 0.5 and 1 %. The last column attacks a real log of other people: that is habit.\n"
    )
    attacks = shared.held_out.attacks
    rows = [(question, *_cells(attacks, name)) for name, question in QUESTIONS.items()]
    near, copies = attacks.near_copies, attacks.shifted_copies
    rest = (
        f"\n{near.share:.1%} of the published jobs lie within an hour of a real job of the same size, limit and ±10 % "
        f"run time ({near.share_shifted:.1%} after a shift of a week). At the best shift, {copies.weeks} weeks, "
        f"{copies.share:.1%} repeat a real job. {attacks.names_published:.0%} of the real names are published.\n"
    )
    return part + "\n" + _table(("attack", "AUC", "found at 1 % false positives", "AUC, other people"), rows) + rest


def _cells(attacks: Attacks, name: str) -> tuple[str, str, str]:
    result: AttackResult = getattr(attacks, name)
    if not result.synthetic.true_claims and name in ("user_names", "project_names"):
        return "no name in common", "", ""
    return str(result.synthetic), result.found, str(result.holdout)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
