# What a contributor types. Each target is one script under tools/, so that it can be read and run without make.

.PHONY: setup demo test check agents bench campaign

PART ?= cuts
ROUNDS ?= 100

setup: ## .venv with everything that development needs; needs Python 3.11 or newer and git, no root
	@tools/setup

demo: setup ## a task from submit to fetched branch, in a repository of its own
	@.venv/bin/shunter demo

test: ## the whole suite, on the default Python, the oldest a host may have, and the newest here
	@tools/test

check: setup ## format, lint, types, floors, oldest Python, generated files
	@tools/check

agents: setup ## only what needs the real agent command lines (node, npm and about 1.5 GB), their model scripted
	@tests/agents/install
	@SHUNTER_REQUIRE_AGENTS=1 .venv/bin/pytest -n 2 -q tests/integration/test_agent_clis.py tests/e2e/test_agents.py

campaign: setup ## random faults against a pool of its own: PART, ROUNDS, SEED; CONTRIBUTING.md tells more
	@tools/campaign --part $(PART) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

bench: setup ## figures of docs/performance.md; see bench/run
	@bench/run
