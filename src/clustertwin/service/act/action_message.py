"""The message about an action: a record -> a title, and a text for a reader who has never seen the twin.

The owner of the job and the administrators read the same facts. Each is told what they can do: the owner how to end the
job and how to object, an administrator how to decide.
"""

from __future__ import annotations

from clustertwin.core import formatting
from clustertwin.service.act.action_journal import ActionRecord
from clustertwin.service.act.policy import UNDO
from clustertwin.telemetry.diagnosis.evidence import clean
from clustertwin.telemetry.diagnosis.odd_rank import HANGS, KINDS

#: action -> what it does, after "to"; and what was done
PLANS = {
    "notify": "send this message",
    "hold": "hold the job in the queue",
    "requeue": "end the job and put it back into the queue",
    "suspend": "suspend the job",
    "cancel": "end the job",
    "drain": "start no other job on its nodes",
    "reserve": "reserve its nodes for maintenance",
}
DONE = {
    "notify": "This message was sent. Nothing else was done.",
    "hold": "The job is held in the queue.",
    "requeue": "The job was ended and waits in the queue again.",
    "suspend": "The job was suspended. It keeps its nodes.",
    "cancel": "The job was ended.",
    "drain": "No other job starts on its nodes. This job goes on.",
    "reserve": "Its nodes are reserved for maintenance. This job goes on.",
}
ABOUT = (
    "This message comes from clustertwin, which watches the jobs of this cluster for its administrators. It has looked "
    "at the states and call stacks of the job's processes. It keeps nothing of their data, environment or arguments."
)


def compose_message(action: ActionRecord, link: str = "", owner: bool = False, contact: str = "") -> tuple[str, str]:
    """Title and text: what happened, what is known, what is done, what to do, what it saves, how to object."""
    plan = action.plan
    whose = "Your job" if owner else "Job"
    rank = "" if "ank" not in plan.sentence else " A rank is one process of an MPI program."
    parts = [
        ("What happened", _happened(action, owner)),
        ("What is known", f"{plan.sentence}{rank} clustertwin is {formatting.percent(plan.sure)} sure."),
        ("What is done", _done(action)),
        ("What you can do", _choices(action) if owner else _decision(action)),
        ("What it saves", _saves(action)),
        ("How to object", _objection(action, contact) if owner else ""),
    ]
    lines = [f"{name}: {text}" for name, text in parts if text]
    if link:
        lines.append(f"More: {link.rstrip('/')}/events/{action.event}")
    lines += [ABOUT] if owner else []
    state = "hangs: " if plan.cause in HANGS else "is unusual: "
    title = f"{whose} {plan.facts.target} {state}{KINDS.get(plan.cause, plan.cause)}"
    return clean(title), "\n\n".join(clean(line, 600) for line in lines)


def _happened(action: ActionRecord, owner: bool) -> str:
    facts = action.plan.facts
    whose = "Your job" if owner else "Job"
    of = "" if owner else f" of {facts.user}, account {facts.account or 'none'},"
    nodes = formatting.listed(facts.nodes, 8)
    text = f"{whose} {facts.target}{of} in partition {facts.partition} on {nodes} "
    if action.plan.cause not in HANGS:
        return f"{text}does something unusual. clustertwin does not claim that it hangs."
    text += "has stopped making progress."
    if facts.limit_s is None or action.state == "done":
        return text
    until = formatting.clock(facts.start_s + facts.limit_s)
    return f"{text} If nothing is done, it keeps its nodes until its time limit at {until} and finishes nothing."


def _done(action: ActionRecord) -> str:
    what = PLANS[action.verb]
    if action.state == "done":
        rule = "" if action.verb == "notify" else f" The rule “{action.rule}” of the administrators allows this."
        return f"{DONE[action.verb]}{rule} {UNDO[action.verb]}"
    if action.state == "failed":
        return f"clustertwin tried to {what} and failed: {action.result}."
    if action.state == "advised":
        return f"Nothing. clustertwin only advises to {what}."
    if action.state == "proposed":
        return f"Nothing yet. clustertwin proposes to {what}, and an administrator decides. {UNDO[action.verb]}"
    return f"The proposal to {what} is {action.state}."


def _choices(action: ActionRecord) -> str:
    """For the owner."""
    facts = action.plan.facts
    if action.state == "done" and action.verb in ("cancel", "requeue"):
        again = "Submit it again" if action.verb == "cancel" else "It starts again by itself"
        return f"Look at the ranks that are named above before the job runs again. {again} when the cause is mended."
    return (
        f"Look at the ranks that are named above. If the job hangs, end it with `scancel {facts.target}`, mend the "
        "cause and submit it again. If it works as you intend, object."
    )


def _decision(action: ActionRecord) -> str:
    """For an administrator."""
    if action.state == "proposed":
        return (
            f"`twin act show {action.id}` prints the exact commands; `twin act approve {action.id} --yes` runs them; "
            + (f"`twin act dismiss {action.id}` refuses, and suspends the rule “{action.rule}”.")
        )
    if action.state == "done":
        return f"If this was wrong, dismiss the event: this suspends the rule “{action.rule}”."
    return "Tell the owner, or decide yourself."


def _saves(action: ActionRecord) -> str:
    promised = action.promise
    if not promised[0]:
        return ""
    when = (
        "Ending it has freed"
        if action.state == "done" and action.verb in ("cancel", "requeue")
        else "Ending it now frees"
    )
    hours, low, high = (formatting.number(value, 2) for value in promised)
    return f"{when} about {hours} node-hours for other jobs (simulated: {low} to {high} in eight of ten cases)."


def _objection(action: ActionRecord, contact: str) -> str:
    whom = contact or "the administrators of this cluster"
    return (
        f"Write to {whom} and name action {action.id}. If they agree, the rule “{action.rule}” does nothing more until "
        "a person allows it again."
    )
