"""The message about an action: a record -> a title, and a text for a reader who has never seen the twin."""

from __future__ import annotations

from clustertwin.service.act.action_journal import ActionRecord
from clustertwin.service.act.policy import UNDO
from clustertwin.telemetry.diagnosis.evidence import clean

WHAT = {
    "proposed": "The twin proposes to {verb} the job. An administrator decides; nothing was done yet.",
    "advised": "The twin advises to {verb} the job. It does nothing by itself.",
    "done": "The twin did this: {verb} the job. Rule “{rule}” allowed it.",
    "failed": "The twin tried to {verb} the job, and failed: {result}.",
}


def compose_message(action: ActionRecord, link: str = "") -> tuple[str, str]:
    """Title and text: what happened, what is known, what it costs, and what to do."""
    plan, facts = action.plan, action.plan.facts
    what = WHAT.get(action.state, "The action is {state}.")
    lines = [
        f"What is known: {plan.sentence}",
        f"Job {facts.job} of {facts.user} on {', '.join(facts.nodes[:8])}, partition {facts.partition}. "
        f"The twin is {plan.sure:.0%} sure.",
        what.format(verb=action.verb, rule=action.rule, result=action.result, state=action.state),
        UNDO[action.verb],
    ]
    if plan.promised_node_hours:
        lines.append(
            f"If the job is ended now, this saves {plan.promised_node_hours:.2f} node-hours "
            f"(80 % interval {plan.promised_low:.2f} to {plan.promised_high:.2f})."
        )
    lines.append("What you can do: look at the rank that is named, end the job yourself, or dismiss the event.")
    if link:
        lines.append(f"{link.rstrip('/')}/events/{action.event}")
    return f"Job {clean(facts.job)} hangs: {plan.cause}", "\n".join(map(clean_line, lines))


def clean_line(text: str) -> str:
    return clean(text, 600)
