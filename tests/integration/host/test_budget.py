"""What a supervisor costs while its agent runs; the figures are in the output of the test, the bounds are wide."""

from __future__ import annotations

from .test_output import pss_kib
from .world import World


def test_a_supervisor_is_small(world: World) -> None:
    attempts = [world.start("sleep", "600") for _ in range(3)]
    for attempt in attempts:
        world.wait(attempt, "launched")
    for attempt in attempts:
        pid = world.supervisor(attempt)["pid"]
        pss, anonymous = pss_kib(pid), pss_kib(pid, "Pss_Anon")
        print(f"supervisor {pid}: PSS {pss} KiB, of which {anonymous} KiB are its own")
        assert pss < 8 << 10
    for attempt in attempts:
        world.cancel(attempt)
        world.wait(attempt)


def test_a_supervisor_loads_nothing_it_does_not_need(world: World) -> None:
    attempt, _ = world.run("true")
    library = next((world.data_root / "lib").iterdir())
    import subprocess

    code = "import sys; sys.path.insert(0, sys.argv[1]); import shunter.host.supervisor; print(*sorted(sys.modules))"
    done = subprocess.run([world.python, "-I", "-S", "-c", code, str(library)], check=True, capture_output=True)
    loaded = set(done.stdout.decode().split())
    assert not loaded & {
        "json",
        "re",
        "typing",
        "subprocess",
        "threading",
        "ctypes",
        "dataclasses",
        "signal",
        "sqlite3",
    }
    assert attempt.id
