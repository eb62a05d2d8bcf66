"""The policy file: what it allows, and one sentence for each way to write it wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.decision import decide
from clustertwin.service.act.policy import ActionPolicy, check_names, parse_policy, read_policy
from clustertwin.service.act.slurm_commands import JobFacts
from clustertwin.telemetry.diagnosis.evidence import JobFinding

GOOD = '[[rule]]\nname = "hung"\ncauses = ["stopped"]\naction = "cancel"\nmode = "auto"\nfor = "1 min"\n'
FACTS = JobFacts("42", "ada", 1000, "physics", "batch", "RUNNING", 1.0, ("n1",), 3600.0, 1, 0)
STOPPED = JobFinding("stopped", True, "Rank 3 of 8 is stopped.", (3,), 0.99)


def test_without_a_file_nothing_is_allowed():
    assert read_policy(None) == ActionPolicy()
    assert decide(read_policy(None), STOPPED, 1e6, FACTS, {}, {}).rule is None


def test_a_rule_has_its_settings():
    (rule,) = parse_policy(GOOD).rules
    assert (rule.name, rule.action, rule.mode, rule.for_s) == ("hung", "cancel", "auto", 60.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "surre = 1\n", "policy: rule 'hung': there is no setting surre"),
        (GOOD.replace("cancel", "reboot"), "policy: rule 'hung': unknown action 'reboot'"),
        (GOOD.replace("stopped", "ugly"), "policy: rule 'hung': unknown cause 'ugly'"),
        (GOOD.replace("auto", "always"), "policy: rule 'hung': unknown mode 'always'"),
        (GOOD + "sure = 0.5\n", "policy: rule 'hung': mode auto needs sure of at least 0.9"),
        (GOOD + "sure = 7\n", "policy: rule 'hung': sure must be above 0 and at most 1"),
        (GOOD.replace('"1 min"', '"60"'), "policy: rule 'hung': for: '60' is not a duration"),
        (GOOD.replace('name = "hung"\n', ""), "policy: rule 1: name is missing"),
        (GOOD + "most_per_day = true\n", "policy: rule 'hung': most_per_day has the wrong type"),
        (GOOD + GOOD, "policy: two rules have the name 'hung'"),
        ("[rule]\n", "policy: write [[rule]], with two brackets"),
        ("mode = 'auto'\n", "policy: there is no setting mode"),
        ("[[rule", "policy: "),
    ],
)
def test_a_wrong_policy_is_one_clear_sentence(text, sentence):
    with pytest.raises(SettingsError) as error:
        parse_policy(text)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_a_partition_that_slurm_does_not_have_is_an_error():
    policy = parse_policy(GOOD + 'partitions = ["gpu"]\n')
    with pytest.raises(SettingsError, match="Slurm has no partition 'gpu'; it has batch, debug"):
        check_names(policy, {"batch", "debug"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"finding": replace(STOPPED, sure=0.9)}, "the certainty is 0.90; the rule needs 0.95"),
        ({"lasts_s": 10.0}, "has lasted for 10 s, and 60 s are needed"),
        ({"facts": replace(FACTS, partition="gpu")}, "partition gpu is not in the rule"),
        ({"facts": replace(FACTS, account="art")}, "account art is not in the rule"),
        ({"facts": replace(FACTS, state="COMPLETED")}, "the job is COMPLETED"),
        ({"used_today": {"hung": 2}}, "acted 2 times today"),
        ({"suspended": {"hung": "it was wrong"}}, "the rule is suspended: it was wrong"),
        ({"finding": replace(STOPPED, kind="mismatch")}, "no rule has this cause"),
    ],
)
def test_each_limit_stops_a_rule(changes, reason):
    policy = parse_policy(GOOD + 'partitions = ["batch"]\naccounts = ["physics"]\nmost_per_day = 2\n')
    values = {"finding": STOPPED, "lasts_s": 100.0, "facts": FACTS, "used_today": {}, "suspended": {}}
    assert decide(policy, **values).rule is not None
    decision = decide(policy, **{**values, **changes})
    assert decision.rule is None
    assert reason in decision.reason
