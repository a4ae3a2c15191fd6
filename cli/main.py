"""Entry point of `cflow`: the list of commands, and how failures become one line and an exit code.

Exit codes: 0 done; 1 measured, and the result is a failure; 2 usage or environment; 130 Ctrl-C.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

import typer
from typer.exceptions import TyperException

from baselines.errors import BaselineError
from cli.baseline import baseline
from cli.bench import bench
from cli.check import check
from cli.compare import compare
from cli.console import EXIT_INTERRUPTED, EXIT_USAGE, UsageError, message
from cli.convert import convert
from cli.data import data
from cli.doctor import doctor
from cli.explain import explain
from cli.generate import generate
from cli.inspect import inspect
from cli.ppl import ppl
from cli.report import report
from cli.synth import synth
from cli.train import train
from engine.errors import CflowError
from harness.errors import HarnessError

# As a shell reports a process that SIGPIPE ended: the reader of our output went away.
_EXIT_PIPE = 128 + signal.SIGPIPE
COMPLETE_VARIABLE = "_CFLOW_COMPLETE"
"""With it the script of a shell asks what may follow, instead of running a command."""

app = typer.Typer(
    name="cflow",
    help="Decode quantised transformers on CPUs, and check the claims made about it.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_USAGE)


_EXAMPLES: dict[Callable[..., None], str] = {
    doctor: "cflow doctor --profile quick",
    bench: "cflow bench -m smollm2.gguf --threads 1,2 --against llama.cpp",
    generate: 'cflow generate -m smollm2.cflow -p "Once upon a time" -n 64',
    synth: "cflow synth model.cflow --geometry arch2_4_combined --seed 1",
    convert: "cflow convert model.gguf model.cflow",
    ppl: "cflow ppl -m model.cflow -f text.txt --against model_f32.cflow",
    inspect: "cflow inspect model.cflow --verify",
    check: "cflow check reports/runs/20260101T000000Z-host --json",
    compare: "cflow compare reports/runs/A reports/runs/B --out compared.html",
    report: "cflow report reports/runs/20260101T000000Z-host",
    explain: "cflow explain 7",
    train: "cflow train --arch arch4 --data andersen --steps 2000 --out runs/arch4",
}
for _command, _example in _EXAMPLES.items():
    app.command(_command.__name__, epilog=f"Example: {_example}")(_command)
app.add_typer(baseline)
app.add_typer(data)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code. What a user can cause gives one line on stderr and no traceback."""
    try:
        _invoke(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        return 0
    except typer.Exit as exit_:
        return exit_.exit_code
    except TyperException as error:
        message(error.format_message())
        return EXIT_USAGE
    except KeyboardInterrupt:
        message("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has no reader; without this the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_PIPE
    except (BaselineError, CflowError, HarnessError, UsageError) as error:
        message(str(error))
        return EXIT_USAGE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message(f"{where}{error.strerror or error}")
        return EXIT_USAGE


def _invoke(arguments: list[str]) -> None:
    # Not `app(...)`: that turns Ctrl-C and a closed pipe into exit codes of its own, without a word.
    if COMPLETE_VARIABLE in os.environ:
        app(prog_name="cflow")
    command = typer.main.get_command(app)
    with command.make_context("cflow", arguments) as context:
        command.invoke(context)


def main() -> None:
    """The `cflow` console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
