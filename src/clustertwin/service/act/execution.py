"""Do what was approved: an action -> Slurm's commands, once, with the result in the journal.

Before the commands, Slurm is asked again. An action is not done if the job has ended, runs again, or does not run on
the nodes of the event. After a crash `recover` asks Slurm what happened and completes or closes the action.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clustertwin.core.errors import SourceError, TwinError
from clustertwin.service.act.action_journal import EXPIRES_S, ActionRecord, Journal, acting
from clustertwin.service.act.slurm_commands import (
    RunCommand,
    commands_of,
    describe,
    is_done,
    is_drained,
    read_facts,
    run_command,
)

#: Delivers the message about an action.
Deliver = Callable[[ActionRecord], None]
#: Why an action is not needed any more.
CHANGED = "the job has ended or changed"
UNNEEDED = {"drain": "its nodes are drained already", "reserve": "the reservation exists already"}
#: States of a job that has not ended.
ALIVE = ("PENDING", "RUNNING", "SUSPENDED")


class Executor:
    def __init__(
        self,
        home: Path,
        journal: Journal,
        run: RunCommand = run_command,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        deliver: Deliver | None = None,
    ) -> None:
        self._home, self._journal, self._run = home, journal, run
        self._sleep, self._clock, self._deliver = sleep, clock, deliver

    def dry_run(self, action: ActionRecord) -> list[str]:
        """The commands as a person would type them."""
        return [
            f"(wait at most {float(command[1]):.0f} s for the job to end)"
            if command[0] == "sleep"
            else describe(command, self._run)
            for command in _commands_of(action)
        ]

    def execute(self, action_id: str) -> ActionRecord:
        """Do an approved action. The record says what came of it."""
        with acting(self._home):
            self._recover_locked()
            if self._journal.action(action_id).state in ("done", "failed"):
                return self._journal.action(action_id)  # another process was faster
            action = self._journal.begin(action_id, self._clock())
            return self._finish(action, again=False)

    def recover(self) -> list[ActionRecord]:
        """Complete or close the actions of a process that was killed, and do those that it had only approved."""
        with acting(self._home):
            done = self._recover_locked()
            for action in self._journal.actions(("approved",)):
                begun = self._journal.begin(action.id, self._clock())
                if self._clock() - action.changed_s > EXPIRES_S:
                    done.append(self._journal.finish(action.id, False, "it was approved too long ago", self._clock()))
                else:
                    done.append(self._finish(begun, again=False))
            return done

    def _recover_locked(self) -> list[ActionRecord]:
        return [self._finish(action, again=True) for action in self._journal.actions(("running",))]

    def _finish(self, action: ActionRecord, again: bool) -> ActionRecord:
        plan, begun = action.plan, "after a restart: " if again else ""
        try:
            if action.verb == "notify":
                if self._deliver is not None:
                    self._deliver(action)
                return self._journal.finish(action.id, True, f"{begun}the message was queued", self._clock())
            if is_done(action.verb, plan.facts, action.id, self._run):
                # This action did it before the crash, if a command was begun. Otherwise someone else did.
                ok = again and action.step > 0
                reason = (
                    "Slurm shows that it was done" if ok else f"nothing was done: {UNNEEDED.get(action.verb, CHANGED)}"
                )
                return self._journal.finish(action.id, ok, f"{begun}{reason}", self._clock())
            now = read_facts(plan.facts.job, self._run)
            if now.uid != plan.facts.uid or now.nodes != plan.facts.nodes:
                return self._journal.finish(action.id, False, "nothing was done: the job has changed", self._clock())
            if now.state not in ALIVE and not action.step:  # a drain of several nodes that was begun is completed
                return self._journal.finish(action.id, False, "nothing was done: the job has ended", self._clock())
            self._commands(_commands_of(action), action)
        except SourceError as error:
            step = self._journal.action(action.id).step
            sent = f"{describe(_commands_of(action)[step - 1], self._run)} was begun" if step else "nothing was done"
            return self._journal.finish(action.id, False, f"{begun}{sent}: {error}", self._clock())
        except TwinError as error:
            return self._journal.finish(action.id, False, f"{begun}nothing was done: {error}", self._clock())
        return self._journal.finish(action.id, True, f"{begun}done", self._clock())

    def _commands(self, commands: Sequence[Sequence[str]], action: ActionRecord) -> None:
        """Run the commands after the last one that was begun before a crash. The last command may run again."""
        for number, command in enumerate(commands, 1):
            last = number == len(commands)
            if number <= action.step and not last:
                continue
            if command[0] == "sleep":
                self._wait(float(command[1]), action)
                continue
            if number > 1 and action.verb == "cancel" and is_done("cancel", action.plan.facts, action.id, self._run):
                return  # the signal was enough
            if action.verb == "drain" and is_drained(action.plan.facts.nodes[number - 1], self._run):
                continue  # also if someone else has drained it: the reason stays theirs
            self._journal.begin_step(action.id, number)
            self._run(command)

    def _wait(self, grace_s: float, action: ActionRecord) -> None:
        """Wait for the job to end, at most for the grace."""
        end_s = self._clock() + grace_s
        while self._clock() < end_s and not is_done("cancel", action.plan.facts, action.id, self._run):
            self._sleep(min(1.0, max(end_s - self._clock(), 0.0)))


def _commands_of(action: ActionRecord) -> list[list[str]]:
    plan = action.plan
    return commands_of(action.verb, plan.facts, action.id, plan.signal, plan.grace_s, plan.reserve_s)
