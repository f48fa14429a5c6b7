"""Model classes of the installed Strands, also without the SDKs of providers."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType
from typing import Any

import strands.models
from strands.models import Model

_SDKS = frozenset(
    {
        "anthropic", "google", "litellm", "llama_api_client", "mistralai",
        "mypy_boto3_sagemaker_runtime", "ollama", "openai", "writerai",
    }
)  # fmt: skip


class _StandInModule(ModuleType):
    """Module in which each name is an empty class, or in lower case such a module."""

    __path__: Sequence[str] = ()
    __version__ = "1.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = (
            importlib.import_module(f"{self.__name__}.{name}")
            if name.islower()
            else type(name, (Exception,), {})
        )
        setattr(self, name, found)
        return found


class _StandInDistribution(Distribution):
    """Metadata of a package of a new enough version."""

    def read_text(self, filename: str) -> str | None:
        return "Version: 99.0\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)


class _StandIns(DistributionFinder, Loader):
    """Finder of last resort for the SDKs of model providers."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _SDKS:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterator[Distribution]:
        if context is not None and context.name in _SDKS:
            yield _StandInDistribution()

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty."""


@contextmanager
def provider_classes() -> Iterator[dict[str, type[Model]]]:
    """Import every model class of Strands, and restore ``sys.modules`` at the end."""
    before = set(sys.modules)
    finder = _StandIns()
    sys.meta_path.append(finder)
    try:
        found: dict[str, type[Model]] = {}
        for module in pkgutil.iter_modules(strands.models.__path__, "strands.models."):
            if not module.name.rpartition(".")[2].startswith("_"):
                names = vars(importlib.import_module(module.name))
                own = {
                    name: value
                    for name, value in names.items()
                    if getattr(value, "__module__", "") == module.name
                }
                found |= {
                    name: value
                    for name, value in own.items()
                    if isinstance(value, type) and issubclass(value, Model) and value is not Model
                }
        yield found
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in _SDKS or name.startswith("strands.models."):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                if parent == "strands.models":
                    vars(strands.models).pop(child, None)
