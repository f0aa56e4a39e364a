"""argv: --part NAME, --rounds N, --seed N. Exit status 1 when something that must hold did not."""

from __future__ import annotations

import argparse
import importlib
import random
import shutil
import sys
import tempfile
from pathlib import Path

# Name: module with `run(root, rounds=, seed=, say=)`, which returns what was broken, in words; its own lines by `say`.
PARTS = {"cuts": "campaign.cuts"}


def main() -> int:
    words = argparse.ArgumentParser(prog="campaign", description="Random faults against a pool of its own.")
    words.add_argument("--part", choices=sorted(PARTS), default="cuts")
    words.add_argument("--rounds", type=int, default=100)
    words.add_argument("--seed", type=int, default=None)
    asked = words.parse_args()
    seed = random.randrange(1 << 20) if asked.seed is None else asked.seed
    root = Path(tempfile.mkdtemp(prefix=f"shunter-campaign-{asked.part}-"))
    part = importlib.import_module(PARTS[asked.part])
    broken = part.run(root, rounds=asked.rounds, seed=seed, say=lambda line: print(line, flush=True))
    if not broken:
        shutil.rmtree(root, ignore_errors=True)
        print("campaign: everything held")
        return 0
    for line in broken:
        print(f"BROKEN  {line}")
    print(f"home is kept in {root}; repeat with: make campaign PART={asked.part} ROUNDS={asked.rounds} SEED={seed}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
