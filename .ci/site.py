"""Build the documentation site from guides, notebooks and docstrings, and check its links.

``uv run --group docs python .ci/site.py`` writes ``build/site/index.html``.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import shutil
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat

import strands_manga_memory

ROOT = Path(__file__).parents[1]
FILES = Path(__file__).with_name("site_files")
PACKAGE = "strands_manga_memory"
FOLDERS = (
    *("assembly", "conversation", "session", "memory", "state", "prompt", "mcp"),
    *("messages", "language", "stores", "user_data", "squad", "telemetry", "ops"),
)
MODULES = ("scope", "exceptions", "testing")
NAMES = tuple(strands_manga_memory.__all__)
SETTINGS = {
    "project": PACKAGE,
    "root_doc": "index",
    "extensions": "myst_nb,sphinx.ext.autodoc,sphinx.ext.napoleon",
    "html_theme": "furo",
    "html_title": f"{PACKAGE} {strands_manga_memory.__version__}",
    "nb_execution_mode": "off",  # the stored outputs are shown
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
    "html_js_files": ["site.js"],
    "html_search_scorer": str(FILES / "search.js"),
    "html_extra_path": ["llms.txt"],
    "html_show_sphinx": False,
    "suppress_warnings": "ref.python",  # attributes of one name in several classes
}

SEARCHES: dict[str, tuple[str, ...]] = {
    "ops/runbook#Hot tier lost": (
        "redis down",
        "valkey down",
        "redis connection refused",
        "hot tier down",
    ),
    "ops/runbook#Throttling": ("dynamodb throttling", "throttled"),
    "ops/runbook#Model overflow": ("context window overflow", "prompt too long"),
    "ops/runbook#Breaker storm": ("breaker open", "tools fail"),
    "conversation/README#Summaries": ("summary model", "summarize history", "summarizer"),
    "conversation/README#Selection": ("token budget", "sliding window", "trim history"),
    "conversation/README#Truncation of large texts": ("large tool result", "truncate"),
    "conversation/README#Recall of evicted messages": ("recall", "search old messages"),
    "guide/quickstart#Add memory to an agent": ("install", "pip install"),
    "guide/operations#Telemetry": ("opentelemetry", "metrics", "grafana"),
    "guide/operations#Deployment": ("deployment", "postgresql", "dynamodb table"),
    "guide/security#Encryption": ("encryption", "encryption key"),
    "guide/security#Isolation": ("multi-tenant", "tenant"),
    "guide/sessions#Time to live": ("ttl", "session ttl", "session expired"),
    "guide/sessions#Pages, forks and rewinds": ("fork", "rewind", "list sessions"),
    "guide/settings#Settings": ("environment variables", "configuration"),
    "guide/migration#Migration": ("import sessions", "migrate"),
    "memory/README#User memory": ("preferences", "long-term memory", "personal data"),
    "mcp/README#Guarded tools": ("circuit breaker", "tool timeout", "mcp server"),
    "prompt/README#Prompt cache": ("cache hit rate", "instruction files"),
    "squad/README#Multi-agent": ("agent squad", "swarm", "graph"),
    "stores/README#Stores": ("redis", "valkey", "dynamodb", "sqlite"),
    "user_data/README#User data and GDPR": ("delete user", "forget user", "export user", "erasure"),
}
"""Phrases that people search for, with the section that answers each: they come first in the
search, and in the index.
"""

_OBJECT = re.compile(r"<[^<>]*>")
"""A default that is not valid Python, such as ``<object at 0x1>``.
Sphinx cannot parse a signature that contains one.
"""


class Links(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the targets and the anchors of a tag."""
        del tag
        for name, value in attrs:
            if name in {"href", "src"} and value:
                self.links.append(value)
            elif name in {"id", "name"} and value:
                self.anchors.add(value)


def stage(source: Path) -> None:
    """Write the site's source: pages of the repository, of each public name and each folder."""
    shutil.rmtree(source, ignore_errors=True)
    for folder in ("reference", "api", "_static"):
        (source / folder).mkdir(parents=True)
    for name in ("site.css", "site.js"):
        shutil.copy(FILES / name, source / "_static")
    for folder in (PACKAGE, "examples", "tests"):
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    for name in ("CHANGELOG.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (source / "README.md").write_text(
        readme.replace(f"# {PACKAGE}\n", "# Overview\n", 1), encoding="utf-8"
    )
    for page in [
        source / "README.md",
        source / "examples/README.md",
        *(source / PACKAGE).rglob("*.md"),
    ]:
        page.write_text(_with_links(page, source), encoding="utf-8")
    _add_searches(source)
    for name in (*FOLDERS, *MODULES):
        (source / "reference" / f"{name}.md").write_text(_reference_page(name), encoding="utf-8")
    for name in NAMES:
        (source / "api" / f"{name}.md").write_text(_api_page(name), encoding="utf-8")
    trees = _trees()
    toc = "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in trees.items()
    )
    landing = (FILES / "landing.md").read_text(encoding="utf-8")
    summary, snippet = (
        readme.split("\n\n")[1],
        readme[readme.index("```python") :].partition("```\n")[0] + "```",
    )
    (source / "index.md").write_text(
        landing.format(summary=summary, snippet=snippet) + toc, encoding="utf-8"
    )
    (source / "llms.txt").write_text(_llms(source, trees, summary), encoding="utf-8")


def _trees() -> dict[str, list[str]]:
    """Return the pages of the site below their captions, in the order of the navigation."""
    guides = sorted(path.stem for path in (ROOT / PACKAGE / "guide").glob("*.md"))
    first = [
        name
        for name in ("quickstart", "concepts", "choosing", "troubleshooting", "migration")
        if name in guides
    ]
    others = [name for name in guides if name not in (*first, "api")]
    return {
        "Start": ["README", *(f"{PACKAGE}/guide/{name}" for name in first)],
        "Parts": [
            f"{PACKAGE}/{name}/README"
            for name in FOLDERS
            if (ROOT / PACKAGE / name / "README.md").is_file()
        ],
        "Guides": [
            *(f"{PACKAGE}/guide/{name}" for name in others),
            *(f"{PACKAGE}/{name}" for name in ("memory/details", "ops/runbook")),
        ],
        "Examples": [
            "examples/README",
            *(
                f"examples/notebooks/{path.stem}"
                for path in sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
            ),
        ],
        "API": [f"{PACKAGE}/guide/api", *(f"api/{name}" for name in NAMES)],
        "Modules": [f"reference/{name}" for name in (*FOLDERS, *MODULES)],
        "Project": ["CHANGELOG"],
    }


def _with_links(page: Path, source: Path) -> str:
    """Return a page whose sections link the first mention of each public name."""
    api = os.path.relpath(source / "api", page.parent)
    seen: set[str] = set()
    own = page.name == "api.md"

    def link(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen or name not in NAMES:
            return found[0]
        seen.add(name)
        return f"[`{name}`]({api}/{name}.md)"

    lines: list[str] = []
    in_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        in_code ^= line.startswith("```")
        heading = re.match(r"#+ ", line)
        if heading and not in_code:
            seen.clear()
        elif not in_code:
            line = re.sub(r"(?<!\[)`(\w+)`(?!\])", link, line)
        lines.append(line)
        if own and line.startswith("### "):
            name = line.removeprefix("### ")
            lines += ["", f"[Reference]({api}/{name}.md)"]
    text = "\n".join(lines) + "\n"
    if own:  # the index links the pages of the names, which have their examples, too
        index, heading, entries = text.partition("\n## ")
        text = re.sub(r"(\[`(\w+)`\])\(#\w+\)", rf"\1({api}/\2.md)", index) + heading + entries
    return text


def _add_searches(source: Path) -> None:
    """Add searched phrases to the site's index, below the headings that answer them."""
    for place, phrases in SEARCHES.items():
        name, _, heading = place.partition("#")
        page = source / PACKAGE / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        found = re.search(rf"^#+ {re.escape(heading)}\n", text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"{page.name} has no heading {heading!r}")
        entries = "\n".join(f"   ! single: {phrase}" for phrase in phrases)
        directive = f"\n```{{eval-rst}}\n.. index::\n{entries}\n```\n"
        page.write_text(text[: found.end()] + directive + text[found.end() :], encoding="utf-8")


def _reference_page(name: str) -> str:
    """Return the page of a module: links to its root names, and the reference of the others."""
    home = importlib.import_module(f"{PACKAGE}.{name}")
    members = list(getattr(home, "__all__", ()))
    for member in members:
        setattr(home, member, getattr(home, member))  # some are loaded at their first use
    at_root = [member for member in members if member in NAMES]
    others = ", ".join(member for member in members if member not in NAMES)
    directive = f".. automodule:: {PACKAGE}.{name}\n   :show-inheritance:\n" + (
        f"   :members: {others}\n" if others else ""
    )
    links = ", ".join(f"[`{member}`](../api/{member}.md)" for member in at_root)
    also = f"At the root of the package: {links}.\n\n" if links else ""
    return f"# {name}\n\n{also}```{{eval-rst}}\n{directive}```\n"


def _api_page(name: str) -> str:
    """Return the page of a public name: import, example and reference."""
    value = getattr(strands_manga_memory, name)
    kind = (
        "class" if inspect.isclass(value) else "function" if inspect.isfunction(value) else "data"
    )
    options = (
        "   :members:\n   :show-inheritance:\n"
        if kind == "class"
        else "   :no-value:\n"
        if kind == "data"
        else ""
    )
    directive = f".. auto{kind}:: {PACKAGE}.{name}\n{options}"
    example = _example(name)
    shown = f"## Example\n\n{example}\n\n" if example else ""
    return (
        f"# {name}\n\n`from {PACKAGE} import {name}`\n\n{shown}##"
        f" Reference\n\n```{{eval-rst}}\n{directive}```\n"
    )


def _example(name: str) -> str:
    """Return the example of a public name in the index of the API."""
    text = (ROOT / PACKAGE / "guide/api.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {name}\n(.*?)(?=\n##|\Z)", text, re.MULTILINE | re.DOTALL)
    _, fence, example = found[1].partition("```python\n") if found else ("", "", "")
    return (fence + example).strip()


def _llms(source: Path, trees: dict[str, list[str]], summary: str) -> str:
    """Return a list of all pages with a sentence about each, for programs that read the site."""
    parts = [f"# {PACKAGE}\n\n> " + " ".join(summary.split()) + "\n"]
    for caption, names in trees.items():
        lines = [
            f"- [{title}]({name}.html): {text}"
            for name in names
            for title, text in [_title_and_summary(source, name)]
        ]
        parts.append(f"## {caption}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _title_and_summary(source: Path, name: str) -> tuple[str, str]:
    """Return the title of a page, and its first sentence."""
    kind, _, last = name.rpartition("/")
    if kind == "api":
        return last, _first_sentence(inspect.getdoc(getattr(strands_manga_memory, last)) or "")
    if kind == "reference":
        return last, _first_sentence(importlib.import_module(f"{PACKAGE}.{last}").__doc__ or "")
    page = source / f"{name}.md"
    notebook = page.with_suffix(".ipynb")
    text = (
        page.read_text(encoding="utf-8")
        if page.is_file()
        else nbformat.read(notebook, as_version=4).cells[0].source
    )
    title, _, rest = text.partition("\n")
    rest = re.sub(r"```.*?```\n", "", rest.replace("**What you will see:**", ""), flags=re.DOTALL)
    return title.removeprefix("# "), _first_sentence(rest)


def _first_sentence(text: str) -> str:
    """Return the first sentence of a text, without links."""
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text.strip().split("\n\n")[0])
    return " ".join(plain.split()).partition(". ")[0].rstrip(".") + "."


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
        home.__all__ = sorted(
            getattr(home, "__all__", ()),
            key=partial(_position, guide=ROOT / PACKAGE / name / "README.md"),
        )
    app.connect("autodoc-skip-member", lambda *seen: True if _is_generated(*seen[2:4]) else None)
    app.connect(
        "autodoc-process-signature",
        lambda *seen: (seen[5] and _OBJECT.sub("...", seen[5]), seen[6]),
    )
    app.build()
    if app.statuscode:
        raise SystemExit(app.statuscode)


def _position(member: str, guide: Path) -> int:
    """Return the position of a name in its folder's guide, which is the order on its page."""
    found = guide.read_text(encoding="utf-8").find(member) if guide.is_file() else -1
    return found if found >= 0 else sys.maxsize


def _is_generated(name: str, member: object) -> bool:
    """Return whether a member is a constructor that ``typing`` or ``object`` generates."""
    return name == "__new__" or (
        name == "__init__" and getattr(member, "__module__", "") == "typing"
    )


def broken(site: Path) -> list[str]:
    """Return the broken links inside the site, each with its page."""
    pages = {page: Links(page) for page in site.rglob("*.html")}
    found = []
    for page, seen in pages.items():
        for link in seen.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
            if not target.is_file() or (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                found.append(f"{page.relative_to(site)}: {link}")
    return sorted(set(found))


def unlisted(site: Path) -> list[str]:
    """Return pages that ``llms.txt`` does not list, and its entries without a page."""
    listed = set(
        re.findall(
            r"^- \[.+?\]\((.+?)\): \S",
            (site / "llms.txt").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    generated = {"index.html", "genindex.html", "py-modindex.html", "search.html"}
    return sorted(
        ({str(page.relative_to(site)) for page in site.rglob("*.html")} - generated) ^ listed
    )


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
    if links := [*broken(out), *unlisted(out)]:
        sys.exit("broken links, and pages that llms.txt does not list:\n" + "\n".join(links))
    print(f"{len(list(out.rglob('*.html')))} pages in {out}")


if __name__ == "__main__":
    main()
