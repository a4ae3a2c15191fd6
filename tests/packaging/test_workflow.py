"""The hooks of pre-commit and the workflow run what the project defines, and nothing from elsewhere."""

from __future__ import annotations

import re
import shlex
from typing import Any

import yaml

from tools import lint
from tools.build_engine import ROOT

WORKFLOW_TEXT = (ROOT / ".github/workflows/ci.yml").read_text()
WORKFLOW = yaml.safe_load(WORKFLOW_TEXT)
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_hooks_are_local_and_each_is_a_step_of_lint() -> None:
    assert [repo["repo"] for repo in HOOKS["repos"]] == ["local"]
    known = {step.name for step in lint.STEPS}
    for hook in HOOKS["repos"][0]["hooks"]:
        command = shlex.split(hook["entry"])
        assert command[:3] == ["python", "-m", "tools.lint"] and len(command) == 4, hook["id"]
        assert command[3] in known, hook["id"]
        assert hook["language"] == "system" and hook["pass_filenames"] is False


def test_hooks_choose_the_files_that_their_steps_look_at() -> None:
    hooks = {hook["id"]: hook for hook in HOOKS["repos"][0]["hooks"]}
    for name, paths in (("clang-format", lint.c_files()), ("shellcheck", lint.shell_scripts())):
        pattern = re.compile(hooks[name]["files"])
        assert [path for path in paths if not pattern.search(path.relative_to(ROOT).as_posix())] == []


def test_the_workflow_may_only_read_and_is_pinned() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in WORKFLOW["jobs"].values())
    used = re.findall(r"uses: (\S+)(.*)", WORKFLOW_TEXT)
    assert len(used) >= 5
    for action, comment in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)
    checkouts = [step for step in steps() if "actions/checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_workflow_runs_the_one_definition_and_keeps_the_report() -> None:
    assert ".ci/run" in [step.get("run") for step in steps()]
    kept = "\n".join(step["with"]["path"] for step in steps() if "upload-artifact" in step.get("uses", ""))
    for path in ("reports/runs/*/report.html", "reports/runs/*/results.json", "build/site", "dist"):
        assert path in kept.splitlines()
    assert all(job["timeout-minutes"] <= 90 for job in WORKFLOW["jobs"].values())
