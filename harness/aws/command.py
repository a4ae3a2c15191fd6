"""Calls of the AWS CLI: for real, or printed only."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from harness.aws.errors import AwsError, CommandError

_TIMEOUT_S: Final = 600


class Aws:
    """The AWS CLI in one region."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._executable = self._find()

    def call(self, *arguments: str) -> str:
        """What the CLI prints, without blanks around. Raises CommandError, and AwsError when it hangs."""
        done = self._run([self._executable, *arguments, "--region", self.region])
        if done.returncode != 0:
            raise CommandError(f"aws {' '.join(arguments[:2])}", done.stderr or done.stdout)
        return done.stdout.strip()

    def json(self, *arguments: str) -> Any:
        """The parsed answer; None when it is empty. Raises like `call`, and AwsError for what is no JSON."""
        answer = self.call(*arguments, "--output", "json")
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise AwsError(f"aws {' '.join(arguments[:2])}: no JSON came back: {answer[:80]!r}") from None

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT_S,
                env=os.environ | {"AWS_PAGER": ""},
                # Ctrl-C is for this process, which then ends the machine, and not for the call under way.
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise AwsError(f"aws {' '.join(command[1:3])}: no answer in {_TIMEOUT_S} s") from None
        except OSError as error:
            raise AwsError(f"{self._executable}: cannot be started: {error.strerror}") from error

    def _find(self) -> str:
        found = shutil.which("aws")
        if found is None:
            raise AwsError(
                "the AWS CLI is not installed, or not on PATH (`pip install awscli`, or AWS's own installer)"
            )
        return found


class PrintedAws(Aws):
    """Prints each call instead of making it.

    answers: (service, operation) -> what stands for the answer; an exception is raised.
    """

    def __init__(self, region: str, answers: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(region)
        self._answers = answers

    def call(self, *arguments: str) -> str:
        """Prints the command; an empty answer."""
        print(shlex.join(["aws", *arguments, "--region", self.region]))
        answer = self._answers.get((arguments[0], arguments[1]))
        if isinstance(answer, Exception):
            raise answer
        return ""

    def json(self, *arguments: str) -> Any:
        """Prints the command; the answer that was given for it."""
        self.call(*arguments, "--output", "json")
        return self._answers.get((arguments[0], arguments[1]))

    def _find(self) -> str:
        return "aws"
