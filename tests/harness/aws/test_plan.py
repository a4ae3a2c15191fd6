"""Names, prices, limits and user data of a run; wrong options are refused by name."""

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.aws.errors import AwsError
from harness.aws.launch import ROOT, write_user_data
from harness.aws.machines import MACHINES, MODEL_PARTS, PRICE_DATE, PRICE_REGIONS, SYSTEM_PARTS
from harness.aws.plan import MAX_HOURS, Plan, make_plan
from harness.aws.userdata import LIMIT_BYTES, user_data
from harness.profiles import profile
from harness.registry import load_registry
from tests.harness.aws.cloud import Cloud, Command

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def plan_of(instance_type: str = "r6i.8xlarge", **options: object) -> Plan:
    """A plan in us-east-1 with an empty environment."""
    given: dict[str, object] = {"region": "us-east-1", "now": NOW, "environment": {}, **options}
    return make_plan(instance_type, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("instance_type", MACHINES)
@given(hours=st.integers(1, MAX_HOURS), usd=st.floats(0.01, 999))
def test_price_is_that_of_the_limit(instance_type: str, hours: int, usd: float) -> None:
    plan = plan_of(instance_type, hours=hours, usd_per_h=usd)
    disk = plan.machine.disk
    monthly = 0.08 * disk.gb + 0.04 * (disk.mb_per_s - 125) + 0.005 * (disk.iops - 3000)
    assert plan.price.at_most_usd == pytest.approx(hours * (usd + monthly / 730))
    assert f"at most ${plan.price.at_most_usd:.2f} at the limit of {hours} hours" in plan.price.text()
    assert "as given by --price" in plan.price.text()


@pytest.mark.parametrize("region", PRICE_REGIONS)
def test_list_price_names_its_date_and_source(region: str) -> None:
    text = plan_of(region=region).price.text()
    assert "$2.016 an hour" in text and "list price of 2026-" in text and "SkyPilot" in text


def test_disks_hold_what_a_run_needs() -> None:
    models, system = (sum(gb for _, gb in parts) for parts in (MODEL_PARTS, SYSTEM_PARTS))
    for machine in MACHINES.values():
        needed = system + (models if machine.store == "ebs" else 0)
        assert 1.2 * needed < machine.disk.gb < 1.5 * needed + 10
    assert MACHINES["r6i.8xlarge"].disk.gb > system + profile("paper").disk_bytes / 1e9
    # Limits of gp3: 500 operations per GB, a quarter MB/s per operation.
    for machine in MACHINES.values():
        assert machine.disk.iops <= 500 * machine.disk.gb
        assert machine.disk.mb_per_s <= machine.disk.iops / 4


def test_limits_leave_room_for_setup_and_checks() -> None:
    checks = load_registry(ROOT / "claims/claims.toml").checks
    for machine in MACHINES.values():
        budget_s = sum(
            check.budget_s.get(machine.profile, 0)
            for check in checks
            if not machine.only or check.claim in machine.only
        )
        assert budget_s > 0
        assert budget_s + 1.5 * 3600 < machine.hours * 3600 <= MAX_HOURS * 3600


def test_the_manual_states_these_prices() -> None:
    manual = (ROOT / "docs/aws.md").read_text(encoding="utf-8")
    for name, machine in MACHINES.items():
        price = plan_of(name).price
        hourly = f"${price.usd_per_h:.3f} | ${price.disk_usd_per_h:.3f}"
        assert f"| {name} | {hourly} | {machine.hours} h | ${price.at_most_usd:.2f} |" in manual
    assert f"list prices of {PRICE_DATE}" in manual


def test_run_is_named_by_time_and_type() -> None:
    plan = plan_of("r6id.8xlarge").of("111122223333")
    assert plan.run == "20260102T030405Z-r6id.8xlarge"
    assert plan.bucket == "cflow-claims-111122223333-us-east-1"
    assert plan.arguments == ("--profile", "paper", "--only", "6", "--only", "7", "--only", "8")
    assert plan_of("r6id.8xlarge", only=["3"]).arguments[2:] == ("--only", "3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instance_type": "t3.nano"}, r"no machine 't3.nano'; allowed: r6i.8xlarge, r6id.8xlarge"),
        ({"profile": "huge"}, r"--profile huge: no such profile; allowed: smoke, quick, full, paper"),
        ({"hours": 0}, r"--hours 0: allowed are 1 to 22"),
        ({"hours": 23}, r"--hours 23: allowed are 1 to 22"),
        ({"usd_per_h": 0.0}, r"--price 0.0: allowed are"),
        ({"usd_per_h": float("nan")}, r"--price nan: allowed are"),
        ({"region": "af-south-1"}, r"--region af-south-1: its price is not known here.*--price"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(AwsError, match=message):
        plan_of(**{"instance_type": "r6i.8xlarge", **options})  # type: ignore[arg-type]


def test_another_region_takes_its_price() -> None:
    assert plan_of(region="af-south-1", usd_per_h=3.192).price.usd_per_h == 3.192


@pytest.mark.parametrize("hours", [1, 9, MAX_HOURS])
def test_user_data_begins_with_the_end_of_the_machine(hours: int) -> None:
    text = user_data(plan_of(hours=hours).of("111122223333"))
    first, second = text.splitlines()[:2]
    assert first == "#!/bin/bash"
    assert second.startswith(f"shutdown -P +{hours * 60} || ") and f"sleep {hours * 3600};" in second
    assert len(text.encode()) < LIMIT_BYTES


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("claim", ["7", "a b", "'; poweroff; '", "$(poweroff)", "#", ")"])
def test_whatever_is_asked_for_is_one_word_there(claim: str) -> None:
    header = user_data(plan_of(only=[claim])).split("\n# What the machine does")[0]
    shown = subprocess.run(
        ["bash", "-c", f"shutdown() {{ :; }}; {header}\nprintf '%s\\0' \"${{arguments[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.split("\0")[:-1] == ["--profile", "paper", "--only", claim]


def test_setup_leaves_time_for_the_run() -> None:
    for hours in range(1, MAX_HOURS + 1):
        found = dict(re.findall(r"^(\w+_minutes)=(\d+)$", user_data(plan_of(hours=hours)), re.M))
        assert int(found["limit_minutes"]) - int(found["setup_minutes"]) >= 40


def test_package_indexes_are_passed_on() -> None:
    plan = plan_of(environment={"PIP_EXTRA_INDEX_URL": "https://example.org/a b", "HOME": "/home/a"})
    assert "\nexport PIP_EXTRA_INDEX_URL='https://example.org/a b'\n" in user_data(plan)
    assert "/home/a" not in user_data(plan)


def test_user_data_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of(), environment=(("PIP_INDEX_URL", "x" * LIMIT_BYTES),))
    with pytest.raises(AwsError, match="EC2 takes 16384"):
        write_user_data(plan, tmp_path / "user-data.sh")


@pytest.mark.no_sanitizer
@pytest.mark.skipif(shutil.which("aws") is None, reason="the AWS CLI is not installed")
def test_the_cli_knows_every_option(
    cloud: Cloud, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI looks at a command before it connects, here to where nobody listens."""
    shown = command("up", "r6i.8xlarge", "--dry-run", "--subnet", "subnet-1").out
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user-data.sh").write_text("#!/bin/bash\n")
    (tmp_path / "source.bundle").write_bytes(b"bundle")
    quick = {"AWS_MAX_ATTEMPTS": "1", "AWS_RETRY_MODE": "standard", "NO_PROXY": "127.0.0.1"}
    nobody = ["--endpoint-url", "http://127.0.0.1:9"]
    credentials = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    commands = [shlex.split(line) for line in shown.splitlines() if line.startswith("aws ")]
    assert len(commands) >= 15
    for words in commands:
        done = subprocess.run(
            [*words, *nobody], env=os.environ | quick | credentials, capture_output=True, text=True
        )
        assert "Could not connect to the endpoint URL" in done.stderr, (words, done.stderr)
