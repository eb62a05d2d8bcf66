"""The journal: ids by a prefix, one write for the begin of an action, and proposals of a clock that was set back."""

from __future__ import annotations

import pytest
from tests.service.act.test_actions import NOW_S, journal, propose, slurm, store

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.action_journal import SET_BACK_S, ApprovalRefused

__all__ = ("journal", "slurm", "store")  # fixtures


def test_a_proposal_cannot_be_approved_after_the_clock_was_set_back(journal, slurm):
    """It stayed open for as long as the clock was set back, on top of its hour."""
    action = propose(journal, slurm)
    with pytest.raises(ApprovalRefused, match="has expired: the clock was set back"):
        journal.approve(action.id, journal.code(action), "ada", NOW_S - SET_BACK_S - 1)
    assert (journal.action(action.id).state, journal.action(action.id).result) == ("expired", "the clock was set back")


def test_proposals_of_a_clock_that_was_set_back_expire_and_can_be_made_again(journal, slurm):
    first = propose(journal, slurm)
    journal.expire(NOW_S - SET_BACK_S)
    assert journal.action(first.id).state == "proposed"
    journal.expire(NOW_S - 86_400)
    assert journal.action(first.id).state == "expired"
    assert propose(journal, slurm).state == "proposed"


def test_an_action_is_found_by_a_unique_prefix_of_its_id(store, journal, slurm):
    for verb, name in (("cancel", "12ab00000000"), ("drain", "12ac00000000"), ("notify", "34ab00000000")):
        action = propose(journal, slurm, verb)
        with store.database.transaction() as connection:
            connection.execute("UPDATE actions SET id = ? WHERE id = ?", (name, action.id))
    assert [journal.find(name) for name in ("12ab", "3", "12ac00000000")] == [
        "12ab00000000",
        "34ab00000000",
        "12ac00000000",
    ]
    with pytest.raises(SettingsError, match="more than one action begins with '12': 12ab00000000, 12ac00000000"):
        journal.find("12")
    for name in ("", "x", "%"):
        with pytest.raises(SettingsError, match="there is no action"):
            journal.find(name)


def test_the_begin_of_an_action_is_one_write(store, journal, slurm, monkeypatch):
    """A kill between two writes left a running action without the time at which it began."""
    action = propose(journal, slurm)
    journal.approve(action.id, journal.code(action), "ada", NOW_S)
    writes, transaction = [], store.database.transaction

    def counted():
        writes.append(1)
        return transaction()

    monkeypatch.setattr(store.database, "transaction", counted)
    begun = journal.begin(action.id, NOW_S + 5)
    assert (begun.state, begun.begun_s, len(writes)) == ("running", NOW_S + 5, 1)
    assert journal.finish(action.id, True, "done", NOW_S + 9).begun_s == NOW_S + 5
