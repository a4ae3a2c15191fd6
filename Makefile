# Boots tox on a fresh machine. Every task is an environment of tox.ini: .venv/bin/tox -e ENV.
# make claims ARGS="--profile smoke" passes arguments on to pytest.
PYTHON ?= python3
ARGS ?=

.PHONY: claims tests
claims tests:
	@sh tools/preflight.sh $(PYTHON)
	@test -x .venv/bin/tox || { $(PYTHON) -m venv .venv && .venv/bin/pip install --quiet 'tox>=4.67'; }
	.venv/bin/tox -e $@ -- $(ARGS)
