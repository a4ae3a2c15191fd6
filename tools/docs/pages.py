"""What is generated into docs/generated/ before the site is built; pages of docs/ include it."""

from __future__ import annotations

from pathlib import Path

from cli.registry import claims_path
from harness.registry import load_registry
from tools.build_engine import ROOT
from tools.docs.c_reference import c_reference
from tools.docs.check_tables import check_table, claim_statement, modules_of
from tools.docs.cli_reference import cli_reference
from tools.docs.export_reference import export_reference
from tools.docs.run_reference import options_table, profiles_table
from tools.docs.schema_reference import schema_reference

GENERATED = ROOT / "docs" / "generated"


def generated_pages() -> dict[str, str]:
    """File name to Markdown text."""
    registry = load_registry(claims_path())
    pages = {
        "cli.md": cli_reference(),
        "export.md": export_reference(),
        "options.md": options_table(),
        "profiles.md": profiles_table(),
        "results.md": schema_reference(ROOT / "harness/schema/results-1.json"),
        "c_api.md": c_reference((ROOT / "engine/include/cflow.h").read_text(encoding="utf-8")),
    }
    for claim in registry.claims:
        pages[f"statement-{claim.id}.md"] = claim_statement(registry, claim.id)
        modules = modules_of(registry, claim.id, ROOT / "claims")
        pages[f"checks-{claim.id}.md"] = check_table(registry, claim.id, modules)
    return pages


def write_pages(folder: Path = GENERATED) -> None:
    """Writes what changed, so that an incremental build sees what did not."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generated_pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
