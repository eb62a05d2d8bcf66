"""A scorecard -> what it means, in a few sentences: the waits, the classifiers, an attacker."""

from __future__ import annotations

from math import isnan

from clustertwin.workload.fidelity.scorecard import Scorecard


def in_words(card: Scorecard) -> tuple[str, ...]:
    """Sentences about one synthetic log, the most important first. Their figures are those of the tables."""
    easy = card.scheduler["EASY"]
    synthetic_s, real_s = easy.synthetic.wait_s, easy.real.wait_s
    apart = f", {synthetic_s / real_s - 1:+.0%}" if real_s > 0 else ""
    waits = (
        f"Its jobs wait {synthetic_s:,.0f} s on average under EASY; real jobs wait {real_s:,.0f} s{apart} (simulated). "
        f"The offered load is {card.load.synthetic:.2f}; the real one is {card.load.real:.2f}."
    )
    return waits, _told_apart(card), _attacked(card)


def _told_apart(card: Scorecard) -> str:
    known = [auc for auc in (card.c2st.row_auc, card.c2st.judge_auc, card.c2st.window_auc) if not isnan(auc)]
    if not known:
        return "Classifiers were not measured."
    return (
        f"The best of {len(known)} classifiers tells it from the real log with AUC {max(known):.2f}: "
        "0.5 is chance, 1 is certain."
    )


def _attacked(card: Scorecard) -> str:
    days = card.attacks.user_days
    if not days.synthetic.true_claims:
        return "What an attacker learns was not measured."
    return (
        f"An attacker finds {days.synthetic.tpr_at_1pct_fpr:.0%} of the days on which a user worked, with 1 % false "
        "claims. Chance is 1 %. Only `twin trace share` makes a log with a guarantee."
    )
