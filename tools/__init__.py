"""Developer tools, run from the root of the checkout as `python -m tools.NAME`. Not part of the wheel."""
