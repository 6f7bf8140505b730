"""Writes `docs/api` from the docstrings in the source: a page for each public module, and their list.

Run it as ``python docs/build_api.py`` after a change of a public name or its docstring; a test asks whether the pages
are what it would write.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as scripts of a folder import each other

from api_source import (
    ROOT,
    Argument,
    Module,
    Symbol,
    arguments,
    bases_of,
    decorators,
    entries,
    exported,
    fields_of,
    members_of,
    module_named,
    public_symbols,
    sections,
    symbol_of,
    top_modules,
)

PAGES = ROOT / "docs" / "api"

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Problems and plans": (
        "problem",
        "forms",
        "training",
        "graph",
        "cluster",
        "presets",
        "constraints",
        "plan",
        "line",
        "result",
        "units",
        "errors",
    ),
    "Solving and proving": (
        "solve",
        "evaluate",
        "certify",
        "certificate",
        "explain",
        "technologies",
        "objectives",
        "alternatives",
        "ablate",
    ),
    "Models, machines, runs": (
        "runs",
        "families",
        "hardware",
        "networks",
        "costing",
        "capture",
        "profile",
        "layer_profiles",
        "layer_tables",
        "collective_tables",
        "validation",
    ),
    "Using a plan": ("files", "breakdown", "simulate", "pipeline", "report", "export", "execute"),
    "Other spaces and programmes": ("dag", "milp"),
}
"""Modules by what they are for; one that is in no group and not internal is listed under the last."""

INTERNAL = frozenset({"classes", "cli", "cost", "downsets", "dp", "places", "provenance", "tables", "uneven"})
"""Modules that are for other modules; the architecture says what for."""

ENTRANCES: Mapping[str, tuple[str, ...]] = {
    "files": ("cluster_file", "model_read", "profile_file"),
    "capture": ("run",),
    "profile": ("module", "model"),
}
"""Modules inside packages that users import, though the package does not export their names."""

GUIDES: Mapping[str, tuple[str, ...]] = {
    "problem": ("file_format", "formulation"),
    "cluster": ("clusters",),
    "presets": ("formulation",),
    "constraints": ("constraints", "howto_add_a_constraint"),
    "solve": ("algorithm", "milp"),
    "certify": ("proof", "howto_verify_optimality"),
    "certificate": ("proof",),
    "explain": ("infeasible",),
    "objectives": ("objectives",),
    "technologies": ("scale_across",),
    "alternatives": ("report",),
    "ablate": ("ablations", "howto_run_an_ablation"),
    "runs": ("plan_a_model", "tutorial"),
    "families": ("models",),
    "hardware": ("clusters", "howto_describe_a_cluster"),
    "networks": ("clusters", "howto_describe_a_cluster"),
    "costing": ("costs", "collectives"),
    "capture": ("capture", "howto_from_torch"),
    "profile": ("capture", "howto_from_torch"),
    "validation": ("costs",),
    "files": ("file_format",),
    "breakdown": ("report",),
    "pipeline": ("simulator",),
    "simulate": ("simulator",),
    "report": ("report",),
    "export": ("export",),
    "execute": ("run_a_plan",),
    "dag": ("dags",),
    "milp": ("milp",),
}
"""Pages that tell what a module is about, by their names."""

BRIEF = frozenset({"report"})
"""Modules of which a line for each name is enough."""

NOTE = "<!-- Written by docs/build_api.py from the docstrings; change those, and run it again. -->"


@dataclass(frozen=True)
class Page:
    """The page of a module: its sections, each of a module with the names that it offers."""

    module: Module
    parts: tuple[tuple[Module, tuple[Symbol, ...]], ...]

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"{self.module.name.removeprefix('nest.')}.md"

    @property
    def brief(self) -> bool:
        """Whether each name has a line instead of a section."""
        return self.module.name.removeprefix("nest.") in BRIEF

    @property
    def symbols(self) -> list[Symbol]:
        """All names, in order."""
        return [each for _, found in self.parts for each in found]


def required(name: str) -> Module:
    """Return a module that has to be there."""
    module = module_named(name)
    if module is None:
        raise LookupError(f"there is no module {name}")
    return module


def page_of(name: str) -> Page:
    """Return the page of a module or package below `nest`."""
    module = required(f"nest.{name}")
    parts = [(module, tuple(public_symbols(module)))]
    for inner in (required(f"nest.{name}.{each}") for each in ENTRANCES.get(name, ())):
        parts.append((inner, tuple(each for each in public_symbols(inner) if isinstance(each.node, ast.FunctionDef))))
    if module.path.name == "__init__.py" and not exported(module):
        modules = [required(f"nest.{name}.{path.stem}") for path in sorted(module.path.parent.glob("[a-z]*.py"))]
        parts += [(inner, tuple(public_symbols(inner))) for inner in modules]
    return Page(module, tuple(parts))


@cache
def grouped() -> dict[str, list[Page]]:
    """Return all pages, by group."""
    listed = {name for names in GROUPS.values() for name in names}
    groups = {title: list(names) for title, names in GROUPS.items()}
    groups[list(groups)[-1]] += [name for name in top_modules() if name not in listed | INTERNAL]
    return {title: [page_of(name) for name in names] for title, names in groups.items()}


@cache
def places() -> dict[tuple[str, str], str]:
    """Return where each public name is described, by the module that defines it and its name."""
    found: dict[tuple[str, str], str] = {}
    for page in (page for pages in grouped().values() for page in pages):
        times = Counter(each.name.lower() for each in page.symbols)
        for each in page.symbols:
            anchor = f"#{each.name.lower()}" if times[each.name.lower()] == 1 and not page.brief else ""
            found.setdefault((each.module.name, each.name), page.file + anchor)
    return found


def target(module: Module, name: str) -> str:
    """Return where a name, as it is used in a module, is described; empty if nowhere."""
    if (ROOT / name).is_file() and name.startswith("docs/"):
        return f"../{name.removeprefix('docs/')}"
    if name.startswith("nest."):
        page = f"{name.removeprefix('nest.')}.md"
        if any(page == each.file for pages in grouped().values() for each in pages):
            return page
        owner, _, name = name.rpartition(".")
        module = module_named(owner) or module
    for each in (module, required("nest.errors")):  # errors are named wherever they pass through
        try:
            found = symbol_of(each, name)
        except LookupError:
            continue
        return places().get((found.module.name, found.name), "")
    return ""


def linked(text: str, module: Module, own: str) -> str:
    """Make links of the names in a text that are described somewhere, but of the one it is about."""

    def link(match: re.Match[str]) -> str:
        where = target(module, match[1]) if match[1] != own else ""
        return f"[`{match[1]}`]({where})" if where else match[0]

    return re.sub(r"(?<![`\[])`([A-Za-z_][\w./]*)`(?!`)", link, text)


def typed(kind: str, module: Module) -> str:
    """Return a type as code, names in it that are described somewhere as links."""
    spans: list[tuple[str, str]] = []
    for part in re.split(r"([A-Za-z_]\w*)", kind):
        where = target(module, part) if part.isidentifier() else ""
        if spans and not where and not spans[-1][1]:
            spans[-1] = (spans[-1][0] + part, "")
        else:
            spans.append((part, where))
    return "".join(f"[`{part}`]({where})" if where else code(part) for part, where in spans)


def code(text: str) -> str:
    """Return a text as code, with the spaces at its ends outside."""
    inner = text.strip()
    return text.replace(inner, f"`{inner}`", 1) if inner else text


def item(name: str, kind: str, text: str) -> str:
    """Return one entry of a list: a name, its type, what it is."""
    head = f"- **{name}**" + (f", {kind}" if kind else "")
    return head + (": " + text.replace("\n", "\n  ") if text else "")


def described(symbol: Symbol, found: list[Argument], doc: dict[str, str]) -> Iterator[str]:
    """Yield entries of parameters or fields: those that the docstring describes, and others of a type of ours."""
    kinds = {each.name.lstrip("*"): each.kind for each in found}
    order = {name: at for at, name in enumerate(kinds)}
    told = [each for section in ("Parameters", "Attributes") for each in entries(doc.get(section, ""))]
    rows: list[tuple[int, str]] = []
    for head, text in told:
        names = [name.strip().lstrip("*") for name in head.partition(" : ")[0].split(",")]
        types = {kinds.pop(name) for name in names if name in kinds}
        kind = typed(types.pop(), symbol.module) if len(types) == 1 else ""
        line = item("`" + "`, `".join(names) + "`", kind, linked(text, symbol.module, symbol.name))
        rows.append((order.get(names[0], len(order)), line))
    others = [(order[name], item(f"`{name}`", typed(kind, symbol.module), "")) for name, kind in kinds.items()]
    yield from (
        line for _, line in sorted([*rows, *(each for each in others if "](" in each[1])], key=lambda row: row[0])
    )


def listed_sections(symbol: Symbol, doc: dict[str, str]) -> Iterator[str]:
    """Yield the other sections of a docstring."""
    for title, text in doc.items():
        if title in ("Raises", "Returns", "Yields"):
            rows = (
                item(typed(head, symbol.module), "", linked(what, symbol.module, "")) for head, what in entries(text)
            )
            yield f"**{title}**\n\n" + "\n".join(rows).replace("****", "")
        elif title not in ("", "Parameters", "Attributes"):
            yield f"**{title}**\n\n{linked(text, symbol.module, symbol.name)}"


def signature(name: str, found: Iterable[Argument], returns: str = "", width: int = 100) -> str:
    """Return a call as code, on one line if it fits."""
    texts = [each.text for each in found]
    end = f" -> {returns}" if returns else ""
    line = f"{name}({', '.join(texts)}){end}"
    if len(line) <= width:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){end}"


def first_sentence(doc: str) -> str:
    """Return the first line of a docstring, or its first sentence where that is longer."""
    return " ".join(doc.partition("\n\n")[0].split())


def member(symbol: Symbol, node: ast.FunctionDef) -> str:
    """Return the entry of a method or property."""
    module, marks = symbol.module, decorators(symbol.module, node)
    doc = linked(first_sentence(ast.get_docstring(node) or ""), module, symbol.name)
    returns = module.source_of(node.returns)
    if marks & {"property", "cached_property"}:
        return item(f"`{node.name}`", typed(returns, module), doc)
    call = signature(node.name, arguments(module, node), returns, sys.maxsize)
    return item(f"`{call}`", "a class method" if "classmethod" in marks else "", doc)


def derived(symbol: Symbol) -> str:
    """Return what a class derives from, private bases replaced by theirs."""
    found: list[str] = []
    for text, base in bases_of(symbol):
        if base and text.startswith("_"):
            found += [derived(base)]
        elif not text.startswith(("Generic", "ABC")):
            found += [typed(text, symbol.module)]
    return ", ".join(each for each in found if each)


def class_parts(symbol: Symbol, node: ast.ClassDef, doc: dict[str, str]) -> Iterator[str]:
    """Yield the parts of a class: how it is made, what its fields are, and its members."""
    module, bases = symbol.module, derived(symbol)
    yield "A protocol." if bases == "`Protocol`" else f"Derives from {bases}." if bases else ""
    found = fields_of(symbol)
    if "dataclass" in decorators(module, node):
        made = [each for each in found if not each.kind.startswith("ClassVar")]
        yield f"```py\n{signature(node.name, made)}\n```"
    yield linked(doc[""], module, symbol.name)
    yield "\n".join(described(symbol, found or init_of(module, node), doc))
    if "Enum" in bases:
        pairs = [each for each in node.body if isinstance(each, ast.Assign)]
        yield "\n".join(f"- `{module.source_of(each.targets[0])}`: `{module.source_of(each.value)}`" for each in pairs)
    yield from listed_sections(symbol, doc)
    members = [member(symbol, each) for each in members_of(node)]
    yield "**Members**\n\n" + "\n".join(members) if members else ""


def init_of(module: Module, node: ast.ClassDef) -> list[Argument]:
    """Return the parameters of ``__init__`` where a class has one of its own."""
    own = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return arguments(module, own[0]) if own else []


def symbol_parts(symbol: Symbol, level: str) -> Iterator[str]:
    """Yield the parts of a public name: heading, signature, text."""
    module, node, doc = symbol.module, symbol.node, sections(symbol.doc)
    yield f"{level} {symbol.name}"
    if isinstance(node, ast.ClassDef):
        yield from class_parts(symbol, node, doc)
    elif isinstance(node, ast.FunctionDef):
        found = arguments(module, node)
        yield f"```py\n{signature(node.name, found, module.source_of(node.returns))}\n```"
        yield linked(doc[""], module, symbol.name)
        yield "\n".join(described(symbol, found, doc))
        yield from listed_sections(symbol, doc)
    else:
        text = module.source_of(node) if node.lineno == node.end_lineno else ""
        yield f"```py\n{text if 0 < len(text) <= 100 else symbol.name + ' = ...'}\n```"
        yield linked(symbol.doc, module, symbol.name)


def brief_line(symbol: Symbol) -> str:
    """Return a name in a line."""
    if isinstance(symbol.node, ast.FunctionDef):
        return member(symbol, symbol.node)
    return item(f"`{symbol.name}`", "", linked(first_sentence(symbol.doc), symbol.module, symbol.name))


def source_link(module: Module) -> str:
    """Return a link to the source of a module."""
    return f"[Source](../../{module.path.relative_to(ROOT)})"


def head_parts(page: Page) -> Iterator[str]:
    """Yield what stands at the top of a page."""
    module, name = page.module, page.module.name.removeprefix("nest.")
    guides = [f"[{title_of(guide)}](../{guide}.md)" for guide in GUIDES.get(name, ())]
    yield f"# {module.name}"
    yield NOTE
    yield linked(ast.get_docstring(module.tree) or "", module, "")
    yield ". ".join([source_link(module), *(["Guides: " + ", ".join(guides)] if guides else [])]) + "."


def title_of(guide: str) -> str:
    """Return the heading of a page."""
    return (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def inner_parts(page: Page) -> Iterator[str]:
    """Yield the sections of a page, of modules inside it under a heading of their own."""
    for module, symbols in page.parts:
        inner = module is not page.module
        if inner and symbols:
            yield f"## {module.name}"
            yield linked(first_sentence(ast.get_docstring(module.tree) or ""), module, "") + f" {source_link(module)}."
        if page.brief:
            yield "\n".join(brief_line(symbol) for symbol in symbols)
        else:
            yield from (part for symbol in symbols for part in symbol_parts(symbol, "###" if inner else "##"))


def page_text(page: Page) -> str:
    """Return a page as Markdown."""
    parts = [*head_parts(page), *inner_parts(page)]
    text = "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
    return text.replace(f"]({page.file}#", "](#")


def index_text() -> str:
    """Return the list of pages."""
    parts = ["# Python reference", NOTE, INTRODUCTION]
    for title, pages in grouped().items():
        rows = "".join(
            f"| [{page.module.name}]({page.file}) | "
            f"{linked(first_sentence(ast.get_docstring(page.module.tree) or ''), page.module, '')} |\n"
            for page in pages
        )
        parts.append(f"## {title}\n\n| Module | What it is for |\n| --- | --- |\n{rows}".rstrip())
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
What can be imported, from the docstrings. To begin with, few names do:
[`nest.files.read_problem`](files.md#read_problem) or [`nest.runs.problem_of`](runs.md#problem_of) for a problem,
[`nest.solve.solve`](solve.md#solve) for the best plan, [`nest.evaluate.evaluate`](evaluate.md#evaluate) for the price
of any plan, and [`nest.certify.certify`](certify.md#certify) for a proof of it. Units are in the names (`load_s`,
`memory_bytes`); whatever is wrong with what is given is an [`InvalidProblem`](errors.md#invalidproblem) in one line."""


def all_texts() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {"README.md": index_text(), **{page.file: page_text(page) for pages in grouped().values() for page in pages}}


def main() -> None:
    """Write all pages, and remove those of modules that are gone."""
    texts = all_texts()
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
