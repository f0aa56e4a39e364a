"""`__main__.py` of shunter-host.pyz: unpack once into <data root>/lib/<digest>/, then run from there.

Python caches no byte code of a zip file; from the directory every later start takes a third of the time, and the
supervisor needs a third less memory, because nothing is compiled in it. Runs as a script: no relative imports.
"""

import os
import sys


def unpacked(archive: str, data_root: str) -> str:
    """The directory that holds the package; made beside and renamed, so that it is complete or absent.

    The archive's name ends in its digest, which whoever installed it has verified.
    """
    digest = os.path.basename(archive)[: -len(".pyz")].rpartition("-")[2]
    os.environ["SHUNTER_HELPER_DIGEST"] = digest
    target = os.path.join(data_root, "lib", digest)
    if not os.path.isdir(target):
        _unpack(archive, target)
    return target


def _unpack(archive: str, target: str) -> None:
    import shutil
    import zipfile

    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    aside = target + "." + os.urandom(4).hex()
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(aside)
    try:
        os.rename(aside, target)
    except OSError:  # somebody else was first
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(target):
            raise


def main() -> None:
    words = sys.argv
    at = words.index("--data-root") if "--data-root" in words else -1
    if at < 0 or at + 1 >= len(words):
        sys.stderr.write("shunter-host: option --data-root is missing\n")
        sys.exit(64)
    sys.path[0] = unpacked(sys.path[0], os.path.realpath(os.path.expanduser(words[at + 1])))
    from shunter.host.main import main as run

    run()


main()
