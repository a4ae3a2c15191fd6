"""`watch`, `list`, `down`: results come back from every ending, and nothing is left."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.harness.aws.cloud import ACCOUNT, Clock, Cloud, Command, nothing

RUN = "20260101T000000Z-r6i.8xlarge"


def put_machine(cloud: Cloud, state: str = "running", minutes_ago: float = 1) -> None:
    """A machine of RUN."""
    launched = (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat(timespec="seconds")
    cloud.put(machine={"state": state, "run": RUN, "type": "r6i.8xlarge", "launched": launched})


@pytest.mark.parametrize("state", ["setup_failed", "run_failed", "time_limit", "stopped"])
def test_a_failed_run_brings_its_log(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path, state: str
) -> None:
    put_machine(cloud)
    clock.events = [lambda: cloud.reports(state, 2, ended=True, **{"machine.log": "why"})]
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert done.code == 2
    assert f"did not finish: {state}" in done.err
    assert (tmp_path / "out/machine.log").read_text() == "why"
    assert cloud.operations()[-2:] == ["cloudwatch delete-alarms", "s3 rm"]


def test_a_machine_that_vanished_while_running_is_no_success(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    put_machine(cloud)
    clock.events = [lambda: cloud.reports("running", ended=True, **{"results.json": "{}"})]
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert (done.code, (tmp_path / "out/results.json").exists()) == (2, True)


def test_results_are_fetched_after_the_machine_is_forgotten(
    cloud: Cloud, command: Command, tmp_path: Path
) -> None:
    put_machine(cloud)
    cloud.reports("measured", 0, ended=True)
    cloud.put(machine=None)
    assert command("watch", RUN, "--out", tmp_path / "out").code == 0


def test_a_run_that_never_was_is_told(cloud: Cloud, clock: Clock, command: Command, tmp_path: Path) -> None:
    clock.events = [nothing, nothing]
    done = command("watch", "nonsense", "--out", tmp_path / "out")
    assert (done.code, "nonsense: no machine and no results" in done.err) == (2, True)


def test_the_report_of_another_run_in_the_folder_does_not_count(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    old = {"run": "another", "state": "measured", "exit_code": 0, "utc": ""}
    (tmp_path / "out/status.json").write_text(json.dumps(old))
    put_machine(cloud, "terminated")
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert (done.code, "ended without a report" in done.err) == (2, True)


def test_a_lost_connection_is_sat_out(cloud: Cloud, clock: Clock, command: Command, tmp_path: Path) -> None:
    put_machine(cloud)
    cloud.fails("s3 sync", "Could not connect to the endpoint URL: x", times=2)
    clock.events = [nothing, lambda: cloud.reports("measured", 0, ended=True)]
    clock.events.append(nothing)
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert done.code == 0
    assert done.err.count("the run goes on without it") == 2


def test_results_that_cannot_be_fetched_stay_in_the_bucket(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    put_machine(cloud)
    cloud.reports("measured", 0)

    def lost() -> None:
        cloud.reports("measured", 0, ended=True)
        cloud.fails("s3 cp", "unused")
        cloud.fails("cloudwatch delete-alarms", "Could not connect to the endpoint URL: x")

    clock.events = [lost, *[nothing] * 4]
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert (done.code, f"watch {RUN}` brings them" in done.err) == (2, True)
    assert "s3 rm" not in cloud.operations()


def test_ctrl_c_brings_what_is_there_and_ends_the_machine(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    put_machine(cloud)

    def interrupted() -> None:
        cloud.reports("running", **{"results.json": "{}"})
        raise KeyboardInterrupt

    clock.events = [interrupted]
    assert command("watch", RUN, "--out", tmp_path / "out").code == 130
    assert cloud.state()["machine"]["state"] == "shutting-down"
    assert (tmp_path / "out/results.json").exists()
    assert cloud.operations()[-2:] == ["ec2 terminate-instances", "cloudwatch delete-alarms"]


def test_a_machine_that_never_reports_is_ended(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    put_machine(cloud, minutes_ago=19)
    clock.events = [lambda: put_machine(cloud, minutes_ago=21)]
    done = command("watch", RUN, "--out", tmp_path / "out")
    assert (done.code, cloud.state()["machine"]["state"]) == (2, "shutting-down")
    assert (tmp_path / "out/console.log").read_text() == "no network\n"


def test_a_machine_that_cannot_be_ended_is_told(cloud: Cloud, command: Command) -> None:
    put_machine(cloud)
    cloud.fails("ec2 terminate-instances", "An error occurred (UnauthorizedOperation) when calling: x")
    done = command("down", RUN)
    assert done.code == 2
    assert f"the machine of {RUN} could not be ended from here, it ends itself at its time limit" in done.err
    assert "cloudwatch delete-alarms" not in cloud.operations(), "the last thing that could end it"


def test_list_shows_machines_with_their_price(cloud: Cloud, command: Command) -> None:
    assert "no machine" in command("list").out
    put_machine(cloud, minutes_ago=60)
    assert f"{RUN}  i-1  r6i.8xlarge  running  1.0 hours, about $2.0" in command("list").out
    put_machine(cloud, "terminated")
    assert "no machine" in command("list").out


def test_list_shows_what_was_left(cloud: Cloud, command: Command) -> None:
    put_machine(cloud)
    answers = {
        "s3api list-objects-v2": [f"{RUN}/", "old/"],
        "cloudwatch describe-alarms": [f"cflow-claims-{RUN}", "cflow-claims-older"],
    }
    cloud.put(answers={**cloud.state()["answers"], **answers})
    assert command("list").out.splitlines()[1:] == [
        "old  ended; `python -m harness.aws watch old` brings its results",
        "older  ended; `python -m harness.aws down older` removes its alarm",
    ]
    cloud.fails("s3api list-objects-v2", "An error occurred (NoSuchBucket) when calling: none")
    assert len(command("list").out.splitlines()) == 2


def test_down_ends_a_run_and_keeps_its_results(cloud: Cloud, command: Command) -> None:
    put_machine(cloud)
    assert command("down", RUN).out == f"{RUN}: i-1 ended\n"
    assert cloud.state()["machine"]["state"] == "shutting-down"
    assert not [name for name in cloud.operations() if name.startswith(("s3", "iam"))]
    assert command("down", RUN).out == f"{RUN}: no machine was running\n"


def test_down_all_leaves_nothing(cloud: Cloud, command: Command) -> None:
    put_machine(cloud)
    cloud.put(answers={**cloud.state()["answers"], "cloudwatch describe-alarms": ["cflow-claims-older"]})
    cloud.fails("s3 rb", "remove_bucket failed: An error occurred (NoSuchBucket) when calling: x")
    assert command("down", "--all").code == 0
    assert cloud.state()["machine"]["state"] == "shutting-down"
    assert ["s3", "rb", f"s3://cflow-claims-{ACCOUNT}-us-east-1", "--force"] in [c[:4] for c in cloud.calls()]
    removed = [words[3] for words in cloud.calls() if words[1] == "delete-alarms"]
    assert removed == [f"cflow-claims-{RUN}", "cflow-claims-older"]
    assert cloud.operations()[-1] == "iam delete-role"


@pytest.mark.parametrize("arguments", [(), (RUN, "--all")])
def test_down_wants_runs_or_all(cloud: Cloud, command: Command, arguments: tuple[str, ...]) -> None:
    done = command("down", *arguments)
    assert (done.code, "name the runs, or give --all" in done.err) == (2, True)
    assert cloud.calls() == []
