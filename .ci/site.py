"""Builds the documentation site, of the guides, the notebooks and the docstrings, and checks every link inside it.

``uv run --group docs python .ci/site.py`` writes ``build/site/index.html``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import strands_manga_memory

ROOT = Path(__file__).parents[1]
PACKAGE = "strands_manga_memory"
FOLDERS = (
    *("assembly", "conversation", "session", "memory", "state", "prompt", "mcp"),
    *("messages", "language", "stores", "user_data", "squad", "telemetry", "ops"),
)
MODULES = ("scope", "exceptions", "testing")
SETTINGS = {
    "project": PACKAGE,
    "root_doc": "README",
    "extensions": "myst_nb,sphinx.ext.autodoc,sphinx.ext.napoleon",
    "html_theme": "furo",
    "html_title": f"{PACKAGE} {strands_manga_memory.__version__}",
    "nb_execution_mode": "off",  # they are kept with what they showed
    "myst_heading_anchors": 4,
    "napoleon_use_ivar": True,
    "add_module_names": False,
    "autodoc_member_order": "bysource",
    "autodoc_preserve_defaults": True,
    "autodoc_typehints": "signature",
    "autodoc_typehints_format": "short",
    "autodoc_class_signature": "separated",
    "python_use_unqualified_type_names": True,
    "toc_object_entries": False,
    "html_copy_source": False,
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "html_show_sphinx": False,
    "suppress_warnings": "ref.python",  # attributes of one name in several classes
}

STYLE = "@media (max-width: 46em) { h1 { font-size: 1.5rem; } h2 { font-size: 1.3rem; } }\n"
"""Names of modules fit on a phone."""


_OBJECT = re.compile(r"<[^<>]*>")
"""A default that is no Python as it is written: with one of them Sphinx reads nothing of a signature."""


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and by which names it can be reached."""
        del tag
        for name, value in attrs:
            if name in {"href", "src"} and value:
                self.links.append(value)
            elif name in {"id", "name"} and value:
                self.anchors.add(value)


def stage(source: Path) -> None:
    """Lay out what the site is made of: the repository's own pages, and one page of reference for each folder."""
    shutil.rmtree(source, ignore_errors=True)
    for folder in ("reference", "_static"):
        (source / folder).mkdir(parents=True)
    (source / "_static/site.css").write_text(STYLE, encoding="utf-8")
    for folder in (PACKAGE, "examples", "tests"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("CHANGELOG.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    for name in (*FOLDERS, *MODULES):
        home = importlib.import_module(f"{PACKAGE}.{name}")
        members = ", ".join(getattr(home, "__all__", ()))
        for member in members.split(", ") if members else ():
            setattr(home, member, getattr(home, member))  # some are loaded when they are first used
        directive = f".. automodule:: {PACKAGE}.{name}\n   :members: {members}\n   :show-inheritance:\n"
        text = f"# {name}\n\n```{{eval-rst}}\n{directive}```\n"
        (source / "reference" / f"{name}.md").write_text(text, encoding="utf-8")
    guides = sorted(path.stem for path in (ROOT / PACKAGE / "guide").glob("*.md"))
    first = [name for name in ("quickstart", "concepts", "choosing", "troubleshooting", "migration") if name in guides]
    trees = {
        "Start": [f"{PACKAGE}/guide/{name}" for name in first],
        "The parts": [f"{PACKAGE}/{name}/README" for name in FOLDERS if (ROOT / PACKAGE / name / "README.md").is_file()],
        "Across the parts": [f"{PACKAGE}/guide/{name}" for name in guides if name not in first] + [f"{PACKAGE}/ops/runbook"],
        "Examples": [
            "examples/README",
            *(f"examples/notebooks/{path.stem}" for path in sorted((ROOT / "examples/notebooks").glob("*.ipynb"))),
        ],
        "Reference": [f"reference/{name}" for name in (*FOLDERS, *MODULES)],
        "Project": ["CHANGELOG"],
    }
    toc = "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in trees.items()
    )
    (source / "README.md").write_text((ROOT / "README.md").read_text(encoding="utf-8") + toc, encoding="utf-8")


def build(source: Path, out: Path) -> None:
    """Build the site; a warning is an error."""
    from sphinx.application import Sphinx  # the rest of this file needs no Sphinx

    settings = {**SETTINGS, "exclude_patterns": ["tests/**", "examples/**/*.py", "**/.*"]}
    app = Sphinx(
        source,
        None,
        out,
        out.parent / "site-doctrees",
        "html",
        settings,
        warningiserror=True,
        status=None,
        parallel=os.cpu_count() or 1,
    )
    for name in FOLDERS:
        home = importlib.import_module(f"{PACKAGE}.{name}")
        home.__all__ = sorted(getattr(home, "__all__", ()), key=partial(_place, guide=ROOT / PACKAGE / name / "README.md"))
    app.connect("autodoc-skip-member", lambda *seen: True if _says_nothing(*seen[2:4]) else None)
    app.connect("autodoc-process-signature", lambda *seen: (seen[5] and _OBJECT.sub("...", seen[5]), seen[6]))
    app.build()
    if app.statuscode:
        raise SystemExit(app.statuscode)
    (out / "index.html").write_text(
        '<!doctype html><meta http-equiv="refresh" content="0; url=README.html">\n', encoding="utf-8"
    )


def _place(member: str, guide: Path) -> tuple[bool, int]:
    """Return where a name stands on its page: what the root offers first, in the order in which the guide names it."""
    told = guide.read_text(encoding="utf-8").find(member) if guide.is_file() else -1
    return member not in strands_manga_memory.__all__, told if told >= 0 else sys.maxsize


def _says_nothing(name: str, member: object) -> bool:
    """Tell whether a member is a constructor that ``typing`` or ``object`` gives to classes: there is nothing to say of it."""
    return name == "__new__" or (name == "__init__" and getattr(member, "__module__", "") == "typing")


def broken(site: Path) -> list[str]:
    """Return the links inside the site that lead nowhere, with their page."""
    pages = {page: Links(page) for page in site.rglob("*.html")}
    found = []
    for page, seen in pages.items():
        for link in seen.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
            if not target.is_file() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                found.append(f"{page.relative_to(site)}: {link}")
    return sorted(set(found))


def main() -> None:
    """Build the site and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site")
    out = parser.parse_args().out.resolve()
    for old in (out, out.parent / "site-doctrees"):
        shutil.rmtree(old, ignore_errors=True)
    source = out.parent / "site-source"
    stage(source)
    build(source, out)
    if links := broken(out):
        sys.exit("links that lead nowhere:\n" + "\n".join(links))
    print(f"{len(list(out.rglob('*.html')))} pages in {out}")


if __name__ == "__main__":
    main()
