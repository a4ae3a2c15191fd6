"""Rules of SECURITY.md that hold for every line of Python here, read from the syntax tree.

None of them has an exception: what would need one is written otherwise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.build_engine import ROOT

OURS = ("architectures", "baselines", "claims", "cli", "engine", "harness", "reports", "tools")
SOURCES = sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))

#: What runs code that came as data.
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
#: What serves a network.
SERVERS = {"socketserver", "http.server", "xmlrpc", "wsgiref", "asyncio.start_server"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_NAMES = {
    "os.system",
    "os.popen",
    "os.tempnam",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "tempfile.mktemp",
    "yaml.load",
    "pandas.read_pickle",
}
#: Methods by which a socket, or something like one, waits for others.
LISTENING = {"bind", "listen", "create_server", "start_server", "serve_forever"}


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((item.value for item in call.keywords if item.arg == name), None)


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def faults_of_imports(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        if {name, name.split(".")[0]} & (FORBIDDEN_MODULES | SERVERS) or name in FORBIDDEN_NAMES:
            yield f"imports {name}"


def faults_of_calls(node: ast.Call) -> Iterator[str]:
    name = dotted(node.func)
    last = node.func.attr if isinstance(node.func, ast.Attribute) else name
    if name in FORBIDDEN_CALLS or name in FORBIDDEN_NAMES:
        yield f"calls {name}"
    if keyword(node, "shell") is not None and not is_constant(keyword(node, "shell"), False):
        yield f"{name}: a shell runs the command"
    if name.endswith("torch.load") and not name.startswith("safetensors") and name != "torch.load":
        yield f"calls {name}"
    if name == "torch.load" and not is_constant(keyword(node, "weights_only"), True):
        yield "torch.load without weights_only=True"
    if name in ("np.load", "numpy.load") and not is_constant(keyword(node, "allow_pickle"), False):
        yield "np.load without allow_pickle=False"
    if keyword(node, "trust_remote_code") is not None:
        yield f"{name}: trust_remote_code runs code of a model"
    if isinstance(node.func, ast.Attribute) and last in LISTENING:
        yield f"{name or last} waits for others"
    templates = last in ("Environment", "Template") and name.startswith("jinja2")
    if templates and not is_constant(keyword(node, "autoescape"), True):
        yield "a jinja2 environment without autoescape=True"


def faults_of_strings(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, str) and re.match(r"/(tmp|var/tmp|dev/shm)\b", node.value):
        yield f"a fixed name in a folder that all users write: {node.value!r}"


def faults(source: str) -> list[str]:
    """What breaks a rule, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        here: list[str] = list(faults_of_imports(node))
        if isinstance(node, ast.Call):
            here += faults_of_calls(node)
        if isinstance(node, ast.Constant):
            here += faults_of_strings(node)
        found += [f"line {getattr(node, 'lineno', 0)}: {fault}" for fault in here]
    return found


def test_no_source_breaks_a_rule() -> None:
    broken = {str(path.relative_to(ROOT)): faults(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: found for name, found in broken.items() if found} == {}
    assert len(SOURCES) > 200


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "from shelve import open",
        "eval('1')",
        "exec(text)",
        "import os; os.system('x')",
        "from subprocess import getoutput",
        "subprocess.run('x', shell=True)",
        "subprocess.Popen(command, shell=wanted)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "tempfile.mktemp()",
        "open('/tmp/cflow.log', 'w')",
        "path = f'/tmp/{name}'",
        "from http.server import HTTPServer",
        "import socketserver",
        "connection.bind(('', 80))",
        "socket.create_server(('', 80))",
        "jinja2.Environment(loader=loader)",
        "jinja2.Environment(autoescape=False)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_each_rule_sees_what_breaks_it(source: str) -> None:
    assert faults(source)


def test_what_is_allowed_passes() -> None:
    assert faults("import subprocess, json, ast\nsubprocess.run(['x'], shell=False)\nmodel.eval()") == []
    assert faults("np.load(path, allow_pickle=False); safetensors.torch.load(body)") == []


TEMPLATES = sorted((ROOT / "reports/templates").glob("*.j2"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_never_turn_escaping_off(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape|Markup", re.sub(r"\{#.*?#\}", "", text, flags=re.S))


def test_markup_is_made_by_the_drawings_alone() -> None:
    """Markup is text that passes through unescaped."""
    makers = [path for path in SOURCES if re.search(r"\bMarkup\(", path.read_text(encoding="utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in makers] == ["reports/figures/svg.py"]
