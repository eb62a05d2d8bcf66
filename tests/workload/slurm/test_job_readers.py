"""Job logs as Slurm sees them: event files of sbatch lines, and sacct."""

from __future__ import annotations

import math
import re

import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.example_log import example_log
from clustertwin.workload.formats import write
from clustertwin.workload.formats.parsing.sacct_pipes import FORGEABLE
from clustertwin.workload.slurm.joblog import sbatch_options as module_of_options
from clustertwin.workload.slurm.joblog.job_readers import parse_events, parse_sacct, read_log
from clustertwin.workload.slurm.joblog.sbatch_options import sbatch_options
from clustertwin.workload.slurm.site.quantities import Gres

EVENTS = """\
-dt 10.5 -e submit_batch_job | -sim-walltime 60.0 --uid=ann -J a -N 2 -n 18 -t 1:00:00 -q high -p long --mem=4G job.sh
-dt 11.0 -e submit_batch_job | -sim-walltime -1 --uid=bob -N1 --exclusive --gres=gpu:v100:2 --constraint=ib job.sh --x
-dt 12.0 -e submit_batch_job | -sim-walltime 5 --uid=bob -n 1 -c 4 --array=0-4%2 --begin=now+60 -L matlab job.sh
-dt 13.0 -e cancel_job | 5
"""


def test_events_are_sbatch_lines_with_a_submit_time():
    log = parse_events(EVENTS, "x.events")
    first, second = log.jobs[:2]
    assert (first.submit_s, first.run_s, first.nodes_min, first.tasks, first.limit_s) == (10.5, 60, 2, 18, 3600)
    assert (first.user, first.qos, first.partitions, first.memory_per_node_mb) == ("ann", "high", ("long",), 4096)
    assert (second.exclusive, second.gres, second.constraint) == (True, (Gres("gpu", "v100", 2),), "ib")
    assert math.isinf(second.run_s)


def test_an_array_becomes_its_tasks_and_a_begin_time_counts_from_submission():
    tasks = parse_events(EVENTS, "x.events").jobs[2:]
    assert [(job.id, job.array, job.array_limit) for job in tasks] == [(3 + i, 3, 2) for i in range(5)]
    assert {job.begin_s for job in tasks} == {72.0}


def test_what_the_model_lacks_is_counted():
    assert parse_events(EVENTS, "x.events").report.of("not modelled") == {"--licenses": 1, "event cancel_job": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-dt 1 -e submit_batch_job --uid=a", r"x\.events:1: not -dt"),
        ("-dt 1 -e submit_batch_job | -N two job.sh", r"x\.events:1: 'two' is not a whole number"),
        ("-dt 1 -e submit_batch_job | -N 99999999999999999999 job.sh", r"x\.events:1: 9+ is too large"),
        ("-dt 1 -e submit_batch_job | -t soon job.sh", r"x\.events:1: 'soon' is not a time"),
        ("-dt 1 -e submit_batch_job | -N", r"x\.events:1: option nodes has no value"),
    ],
)
def test_a_malformed_event_is_refused_with_its_line(line, reason):
    with pytest.raises(TraceError, match=reason):
        parse_events(line, "x.events")


def test_options_end_at_the_script():
    assert sbatch_options("sbatch -N2 --mem 4G run.sh --nodes=9") == {"nodes": "2", "mem": "4G"}


# ruff: noqa: E501
HEADER = "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|ReqNodes|ReqCPUS|ReqMem|ReqTRES|SubmitLine\n"
SACCT = HEADER + """\
7|7|ann|phys|long|high|COMPLETED|D08:00:00|D08:00:00|D08:00:10|D09:00:10|3600|120|2|16|8G|billing=16,cpu=16,gres/gpu=4,mem=8G,node=2|sbatch -N2 -c 2 --nice=5 a|b
7.batch|7.batch||phys|||COMPLETED|D08:00:10|D08:00:10|D08:00:10|D09:00:10|3600||1|8|||
9|8_1|bob|bio|long|normal|FAILED|D08:01:00|D18:01:00|D18:01:05|D18:02:05|60|UNLIMITED|1|1|2Gc|cpu=1,node=1|
10|10|bob|bio|long|normal|CANCELLED by 0|D08:02:00|D08:02:00|None|D08:12:00|0|10|1|1|1Gn|cpu=1,node=1|
""".replace("|D", "|2024-06-03T")  # fmt: skip


def test_sacct_gives_requests_eligible_times_and_recorded_starts():
    log = parse_sacct(SACCT, "x.sacct")
    first, task, withdrawn = log.jobs
    assert (first.nodes_min, first.tasks, first.cpus_per_task, first.nice) == (2, 8, 2, 5)
    assert (first.gres, first.memory_per_node_mb, first.limit_s) == ((Gres("gpu", "", 2),), 4096, 7200)
    assert (first.start_s, first.run_s) == (10, 3600)
    assert (task.array, task.begin_s, task.succeeds, task.memory_per_cpu_mb) == (8, 36_060, False, 2048)
    assert math.isinf(task.limit_s)
    assert (withdrawn.cancel_s, withdrawn.memory_per_node_mb) == (720, 1024)
    assert math.isnan(withdrawn.start_s)


def test_a_bar_in_constraints_and_in_the_command_line_stays_where_it_belongs():
    header = "JobIDRaw|Submit|Constraints|Reservation|SubmitLine\n"
    first, second = parse_sacct(header + "1|100|red|blue||sbatch -C red|blue a|b\n2|101|||sbatch a|b\n", "x.sacct").jobs
    assert (first.constraint, first.reservation) == ("red|blue", "")
    assert second.constraint == ""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("9|8_1|bob|bio|", "9|8_1|bob|", r"x\.sacct:4: 17 columns, the header has 18"),
        ("D08:01:00|", "yesterday|", r"x\.sacct:4: Submit is 'yesterday': Invalid isoformat"),
        ("9|8_1", "99999999999999999999|99999999999999999999", r"x\.sacct:4: job id .* beyond 64 bits"),
        ("9|8_1", "9|99999999999999999999_1", r"x\.sacct:4: job id .* beyond 64 bits"),
        ("|60|UNLIMITED|", "|99999999999999999999|1|", r"x\.sacct:4: ElapsedRaw is .* is too large"),
        ("|60|UNLIMITED|", "|60|99999999999999999999|", r"x\.sacct:4: TimelimitRaw is .* is too large"),
        ("|60|UNLIMITED|1|1|", "|60|UNLIMITED|1|-1|", r"x\.sacct:4: ReqCPUS is '-1': -1 is negative"),
        ("D08:01:00|", "9999-12-31T00:00:00|", r"x\.sacct:4: Submit is .*: the year 9999 is not plausible"),
        ("D18:02:05|60|", "D18:00:05||", r"x\.sacct:4: End 2024-06-03T18:00:05 is before Start"),
        ("|QOS|", "|User|", r"x\.sacct:1: the column User appears twice"),
    ],
)
def test_a_bad_line_of_sacct_is_refused_with_its_place(old, new, reason):
    old, new = (re.sub(r"\bD(?=\d)", "2024-06-03T", words) for words in (old, new))
    text = SACCT.replace(old, new)
    with pytest.raises(TraceError, match=reason):
        parse_sacct(text, "x.sacct")


def test_a_requeued_job_counts_once_and_assumptions_are_counted():
    row = "1|1|ann|a|p|q|{state}|D08:00:00|D08:00:00|{start}|D09:00:00|60|10|1|1|1G|cpu=1|\n"
    rows = row.format(state="REQUEUED", start="D08:10:00") + row.format(state="COMPLETED", start="D08:59:00")
    waiting = "\n2|2_[4-9]|ann|a|p|q|PENDING|D08:00:00|D08:00:00|Unknown|Unknown|0|10|1|1|1G|cpu=1|\n"
    early = row.replace("1|1|", "3|3|", 1).format(state="NEWSTATE", start="D07:00:00")
    log = parse_sacct("\n" + HEADER + (rows + waiting + early).replace("|D", "|2024-06-03T"), "x.sacct")
    assert {job.id: job.start_s for job in log.jobs if not math.isnan(job.start_s)} == {1: 3540}
    assert log.report.lines("assumed", "unknown") == [
        f"assumed: {FORGEABLE.format('SubmitLine')} (1, x.sacct:2)",
        "assumed: jobs with several rows, as after a requeue: only the last row counts (1, x.sacct:4)",
        "assumed: array tasks that never started share one row: taken as one job (1, x.sacct:6)",
        "unknown: State NEWSTATE (1, x.sacct:7)",
        "assumed: jobs that start before their submission: the start is not compared (1, x.sacct:7)",
    ]
    assert [job.run_s for job in log.jobs if job.id == 3] == [60]


@pytest.mark.parametrize("flag", ["-W", "--wait", "-Q", "--verbose", "-k", "-s", "--nice", "--get-user-env", "--pty"])
def test_a_flag_does_not_take_the_next_option_as_its_value(flag):
    """The next option was lost, and with it whatever followed."""
    options = sbatch_options(f"srun {flag} --exclusive -c 4 run.sh")
    assert (options["exclusive"], options["cpus-per-task"]) == ("", "4")


def test_a_limit_of_zero_is_none_and_nice_alone_is_100():
    (job,) = parse_events("-dt 1 -e submit_batch_job | --uid=a -t 0 --nice job.sh", "x.events").jobs
    assert (job.limit_s, job.nice) == (math.inf, 100)


def test_a_job_that_was_cancelled_before_it_started_did_not_run():
    """Older versions of Slurm print its end as its start."""
    header = "JobIDRaw|State|Submit|Start|End|ElapsedRaw|NodeList\n"
    rows = "1|CANCELLED by 7|100|160|160|0|None assigned\n2|CANCELLED by 7|100|160|160|0|n[1-2]\n"
    withdrawn, ran = parse_sacct(header + rows, "x.sacct").jobs
    assert (withdrawn.cancel_s, withdrawn.run_s, ran.cancel_s, ran.run_s) == (60, math.inf, math.inf, 0)
    assert math.isnan(withdrawn.start_s)
    assert ran.start_s == 60


def test_a_task_without_its_own_number_has_not_that_of_another_job():
    """Task 5 of array 100 was job 105, which other jobs may wait for."""
    jobs = parse_sacct("JobID|Submit\n100_5|100\n105|100\n", "x.sacct").jobs
    assert [(job.id, job.array) for job in jobs] == [(100, 100), (105, 0)]


def test_a_command_line_of_several_lines_leaves_the_log_readable():
    """`sbatch --wrap` often has some, and sacct prints them as they are."""
    text = "JobIDRaw|JobID|Submit|SubmitLine\n1|1|100|sbatch --wrap=cd /tmp\n./run a|b\n8|root\n2|2|101|sbatch a\n"
    log = parse_sacct(text, "x.sacct")
    assert [job.id for job in log.jobs] == [1, 2]
    assert log.report.of("assumed")["lines that go on with a command line, which are left out"] == 2


def test_many_small_arrays_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(module_of_options, "MOST_TASKS", 10)
    line = "-dt 1 -e submit_batch_job | --uid=a --array=0-5 job.sh\n"
    assert len(parse_events(line, "x.events")) == 6
    with pytest.raises(TraceError, match=r"x\.events:2: --array=0-5: 12 jobs so far; the limit is 10"):
        parse_events(2 * line, "x.events")


def test_a_gres_of_none_is_no_gres():
    (job,) = parse_sacct("JobID|Submit|ReqTRES\n1|100|cpu=1,gres/gpu=0,node=1\n", "x.sacct").jobs
    assert job.gres == ()


@pytest.mark.parametrize(
    ("submit", "local"), [("2024-06-03T08:00:00", True), ("2024-06-03T08:00:00+0200", False), ("9", False)]
)
def test_a_log_says_whether_its_times_are_local(submit, local):
    assert parse_sacct(f"JobID|Submit\n1|{submit}\n", "x.sacct").local is local


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_command_line_cannot_end_its_row(end):
    """With `str.splitlines` a user could make a log unreadable, or add the jobs of other users to it."""
    header = "JobIDRaw|User|Submit|SubmitLine\n"
    log = parse_sacct(f"{header}1|ann|100|sbatch a{end}9|bob|50|sbatch b\n2|ann|101|sbatch a\n", "x.sacct")
    assert [(job.id, job.user) for job in log.jobs] == [(1, "ann"), (2, "ann")]


def test_a_header_of_very_many_columns_is_read_once():
    """Counting each name among all others took hours."""
    header = "|".join(["JobIDRaw", "Submit", *(f"c{number}" for number in range(300_000))])
    with pytest.raises(TraceError, match="2 columns, the header has 300002"):
        parse_sacct(f"{header}\n1|100\n", "x.sacct")


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_another_separator_is_named(tmp_path, separator):
    (tmp_path / "x.txt").write_text(f"JobID{separator}Submit\n1{separator}100\n")
    with pytest.raises(TraceError, match="the columns are separated by"):
        read_log(tmp_path / "x.txt")


MARK = "|0f1e2d3c4b5a6978|"
FORGED = "sbatch --comment=a\n9|9|eve|50|sbatch b"  # what sacct prints for a job of ann


def _marked(*rows: tuple[str, ...]) -> str:
    return "".join(MARK.join(row) + "\n" for row in (("JobIDRaw", "JobID", "User", "Submit", "SubmitLine"), *rows))


def test_a_command_line_cannot_add_a_row_to_a_log_with_a_random_separator():
    log = parse_sacct(_marked(("1", "1", "ann", "100", FORGED), ("2", "2", "bob", "101", "sbatch -n 1 a|b")), "x.sacct")
    assert [(job.id, job.user) for job in log.jobs] == [(1, "ann"), (2, "bob")]
    assert "assumed: lines that go on with a command line, which are left out (1, x.sacct:3)" in log.report.lines()


def test_a_row_with_a_part_of_the_marks_is_refused():
    with pytest.raises(TraceError, match=r"x\.sacct:2: 3 columns, the header has 5"):
        parse_sacct(_marked(("1", "1", "ann")), "x.sacct")


def test_a_log_whose_rows_can_be_forged_says_so():
    log = parse_sacct(f"JobIDRaw|JobID|User|Submit|SubmitLine\n1|1|ann|100|{FORGED}\n", "x.sacct")
    assert log.report.of("assumed")[FORGEABLE.format("SubmitLine")] == 1


@pytest.mark.parametrize("row", ["1|1|eve|50", "7|1|ann|50"])
def test_a_second_row_of_a_job_that_names_another_user_or_number_is_refused(row):
    with pytest.raises(TraceError, match=r"x\.sacct:3: job 1 is of user .*an earlier row has another user"):
        parse_sacct(f"JobIDRaw|JobID|User|Submit\n1|1|ann|100\n{row}\n", "x.sacct")


def test_without_columns_of_requests_a_job_is_as_large_as_what_it_was_given():
    text = "JobID|Submit|Start|End|AllocCPUS|NNodes|AllocTRES\n1|0|10|70|36|2|cpu=36,mem=8G,node=2\n"
    log = parse_sacct(text, "x.sacct")
    assert [(job.tasks, job.nodes_min, job.memory_per_node_mb) for job in log.jobs] == [(36, 2, 4096)]
    assert "no column ReqCPUS, ReqNodes or ReqTRES: as large as what they were given" in log.report.of("assumed")


def test_a_log_without_any_size_says_that_each_job_is_taken_for_one_cpu():
    log = parse_sacct("JobID|Submit|Start|End\n1|0|10|70\n", "x.sacct")
    assert log.jobs[0].tasks == 1
    assert "no column ReqCPUS, ReqNodes or ReqTRES: one CPU for each job" in log.report.of("assumed")


def test_a_log_that_clustertwin_wrote_keeps_sizes_and_run_times(tmp_path):
    jobs = example_log(20)
    write(jobs, tmp_path / "log.sacct")
    log = read_log(tmp_path / "log.sacct")
    assert [job.tasks for job in log.jobs] == jobs.cpus.tolist()
    assert [job.run_s for job in log.jobs] == jobs.run_s.tolist()


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(TraceError, match="neither sacct"):
        read_log(tmp_path / "x.txt")


@pytest.mark.slow
def test_the_week_of_a_production_site_is_read(data):
    path = data / "slurm" / "ubhpc" / "week.events.gz"
    if not path.is_file():
        pytest.skip("no UB-HPC week here")
    log = read_log(path)
    assert len(log) == 19_579
    assert sum(bool(job.gres) for job in log.jobs) == 73
    assert sum(job.exclusive for job in log.jobs) == 177
    assert log.report.of("not modelled") == {"--exclusive=user": 2}
