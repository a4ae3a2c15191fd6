"""`python -m harness.aws`: up, watch, list, down."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.aws import shared
from harness.aws.command import Aws, PrintedAws
from harness.aws.errors import AwsError, CommandError
from harness.aws.instances import end, running, runs_with_alarm
from harness.aws.launch import ROOT, start, write_bundle, write_user_data
from harness.aws.machines import MACHINES
from harness.aws.plan import TAG, Plan, bucket_name, make_plan
from harness.aws.preflight import look
from harness.aws.userdata import user_data
from harness.aws.watch import MEASURED, Outcome, clear, fetch, say, watch
from harness.errors import HarnessError
from harness.revision import revision

USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130
_DEFAULT_REGION: Final = "us-east-1"
_RUNS: Final = Path("reports/runs")
_PRINTED: Final = {
    ("sts", "get-caller-identity"): {"Account": "ACCOUNT"},
    ("s3api", "head-bucket"): CommandError("aws s3api head-bucket", "An error occurred (404)"),
    ("service-quotas", "get-service-quota"): 32,
    ("ec2", "describe-instance-type-offerings"): ["REGION"],
    ("ec2", "describe-images"): ["IMAGE", "/dev/xvda"],
    ("ec2", "run-instances"): "INSTANCE",
}
"""What stands for the answers of AWS in a dry run."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m harness.aws",
        description="Run the claims on a machine of AWS that ends itself. Manual: docs/aws.md.",
        epilog="Example: python -m harness.aws up r6i.8xlarge --dry-run",
    )
    commands = top.add_subparsers(dest="command", required=True)

    up = commands.add_parser(
        "up", help="start a machine, run the claims there, bring the results back, end it"
    )
    up.add_argument(
        "machine",
        choices=MACHINES,
        help="; ".join(f"{m.instance_type}: {m.purpose}" for m in MACHINES.values()),
    )
    up.add_argument("--profile", help="of the claims; default: paper")
    up.add_argument(
        "--only", action="append", default=[], metavar="ID", help="a claim or check; default: the machine's"
    )
    up.add_argument("--hours", type=int, metavar="N", help="time limit of the machine; default: 9 or 5")
    up.add_argument(
        "--price", type=float, metavar="USD", help="per hour, where the list price is not the one you pay"
    )
    up.add_argument("--subnet", metavar="ID", help="a public one; default: the region's default network")
    up.add_argument(
        "--instance-profile", metavar="NAME", help="an existing one, where you may not make roles"
    )
    up.add_argument("--yes", action="store_true", help="do not ask before money is spent")
    up.add_argument(
        "--dry-run", action="store_true", help="print everything that would be done, call nothing"
    )
    up.set_defaults(act=_up)

    follow = commands.add_parser("watch", help="follow a run again, and bring its results")
    follow.add_argument("run", metavar="RUN")
    follow.set_defaults(act=_watch)
    for one in (up, follow):
        one.add_argument("--out", type=Path, metavar="DIR", help="results; default: reports/runs/RUN")

    left = commands.add_parser("list", help="the machines that run, and what was left")
    left.set_defaults(act=_list)

    down = commands.add_parser("down", help="end machines now")
    down.add_argument("runs", nargs="*", metavar="RUN")
    down.add_argument(
        "--all", action="store_true", help="every machine, then the bucket with its results, and the role"
    )
    down.set_defaults(act=_down)
    for one in (up, follow, left, down):
        one.add_argument("--region", default=_DEFAULT_REGION, help=f"default: {_DEFAULT_REGION}")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code: 0, 1 (measured, something is refuted), 2 (usage, environment), 130."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.act(options)
        return code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except (HarnessError, OSError) as error:
        say(str(error))
        return USAGE_ERROR


def _up(options: argparse.Namespace) -> int:
    plan = make_plan(
        options.machine,
        region=options.region,
        profile=options.profile,
        only=options.only,
        hours=options.hours,
        usd_per_h=options.price,
        subnet=options.subnet,
        instance_profile=options.instance_profile,
    )
    out = options.out or _RUNS / plan.run
    _announce(plan, out)
    if options.dry_run:
        return _print_all(plan, out)
    aws = Aws(plan.region)
    found = look(aws, plan)
    plan = plan.of(found.account)
    for note in found.notes:
        say(note)
    if not options.yes:
        _confirm()
    with tempfile.TemporaryDirectory(prefix="cflow-aws-") as name:
        folder = Path(name)
        write_bundle(folder / "source.bundle")
        write_user_data(plan, folder / "user-data.sh")
        say(f"starting {plan.run}; Ctrl-C ends it")
        instance = start(aws, plan, found, folder)
    say(f"{instance} is starting. It ends itself; after a pause: python -m harness.aws watch {plan.run}")
    return _tell(watch(aws, plan.bucket, plan.run, out), out)


def _print_all(plan: Plan, out: Path) -> int:
    aws = PrintedAws(plan.region, _PRINTED)
    print("\n# before anything is made")
    found = look(aws, plan)
    plan = plan.of(found.account)
    print("\n# what is made (source.bundle: git bundle create source.bundle HEAD)")
    start(aws, plan, found, Path())
    print("\n# the results, every minute until the machine has ended, and then")
    fetch(aws, plan.bucket, plan.run, out)
    clear(aws, plan.bucket, plan.run)
    print("\n# user-data.sh")
    print(user_data(plan))
    return 0


def _announce(plan: Plan, out: Path) -> None:
    source = revision(ROOT)
    what = " ".join(plan.arguments)
    print(f"{plan.run}: {plan.machine.instance_type} in {plan.region}, {plan.machine.purpose}")
    print(f"  runs     pytest claims/ {what}, commit {(source.commit or 'unknown')[:12]}")
    if source.dirty:
        print("           (changes that are not committed stay here: the machine gets the last commit)")
    print(f"  results  {out}")
    print(f"  price    {plan.price.text()}")
    for text in plan.machine.cannot:
        print(f"  cannot   {text}")
    if "vllm" in plan.machine.baselines and not plan.environment:
        print(
            "  note     vLLM needs the CPU build of torch: name its CPU index in PIP_EXTRA_INDEX_URL, which"
            " is passed on; without it its rows may be NOT MEASURABLE HERE"
        )


def _confirm() -> None:
    """Raises AwsError unless the user agrees."""
    if not sys.stdin.isatty():
        raise AwsError(
            "nobody is there to agree to the price: give --yes, or --dry-run to see what would be done"
        )
    if input("Start it? Type yes: ").strip().lower() != "yes":
        raise AwsError("not started")


def _watch(options: argparse.Namespace) -> int:
    aws = Aws(options.region)
    out = options.out or _RUNS / options.run
    return _tell(watch(aws, _bucket(aws), options.run, out), out)


def _tell(outcome: Outcome, out: Path) -> int:
    status = outcome.status
    if status is None:
        say(f"the machine ended without a report; what came back is in {out}")
    elif status.state == MEASURED:
        say(f"measured; report: {out / 'report.html'}, verdicts again: cflow check {out}")
    else:
        say(f"the run did not finish: {status.state} at {status.utc}; log: {out / 'machine.log'}")
    return outcome.exit_code


def _list(options: argparse.Namespace) -> int:
    aws = Aws(options.region)
    found = running(aws)
    for one in found:
        hours = (datetime.now(UTC) - one.launched).total_seconds() / 3600
        machine = MACHINES.get(one.instance_type)
        price = f", about ${hours * machine.usd_per_h:.2f} so far" if machine else ""
        print(f"{one.run}  {one.id}  {one.instance_type}  {one.state}  {hours:.1f} hours{price}")
    if not found:
        print(f"no machine of {TAG} in {options.region}")
    live = {one.run for one in found}
    for run in sorted(set(shared.runs_with_results(aws, _bucket(aws))) - live):
        print(f"{run}  ended; `python -m harness.aws watch {run}` brings its results")
    for run in sorted(set(runs_with_alarm(aws)) - live):
        print(f"{run}  ended; `python -m harness.aws down {run}` removes its alarm")
    return 0


def _down(options: argparse.Namespace) -> int:
    if bool(options.runs) == options.all:
        raise AwsError("down: name the runs, or give --all")
    aws = Aws(options.region)
    for run in options.runs or sorted({*(one.run for one in running(aws)), *runs_with_alarm(aws)}):
        ids = end(aws, run)
        print(f"{run}: {', '.join(ids)} ended" if ids else f"{run}: no machine was running")
    if options.all:
        shared.remove(aws, _bucket(aws))
        print(f"bucket and role of {TAG} removed")
    return 0


def _bucket(aws: Aws) -> str:
    return bucket_name(aws.json("sts", "get-caller-identity")["Account"], aws.region)


if __name__ == "__main__":
    sys.exit(main())
