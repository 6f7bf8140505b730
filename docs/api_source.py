"""Public names of our packages, read from their source without importing it: signatures, fields, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]

Definition: TypeAlias = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign

Sections: TypeAlias = dict[str, str]
"""Text of a docstring by section; under the empty name what comes before the first."""


@dataclass(frozen=True)
class Module:
    """A module of the package: where it is, its text, and its tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    def source_of(self, node: ast.AST | None) -> str:
        """Return a part of the text as it is written, on one line."""
        return " ".join((ast.get_source_segment(self.text, node) or "").split()) if node else ""


@dataclass(frozen=True)
class Symbol:
    """A public name: the module that defines it, its definition, and its docstring (empty where there is none)."""

    name: str
    module: Module
    node: Definition
    doc: str


@dataclass(frozen=True)
class Argument:
    """A parameter of a function, or a field of a class, as written: name with stars, type, default (empty if none)."""

    name: str
    kind: str
    default: str = ""

    @property
    def text(self) -> str:
        """The argument as in a signature."""
        if not self.kind:
            return f"{self.name}={self.default}" if self.default else self.name
        return f"{self.name}: {self.kind} = {self.default}" if self.default else f"{self.name}: {self.kind}"


@cache
def module_named(name: str) -> Module | None:
    """Return a module by its dotted name, None if there is none."""
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            return Module(name, path, text, ast.parse(text))
    return None


def top_modules() -> list[str]:
    """Return the modules and packages directly below `nest`, by name."""
    found = {path.stem if path.is_file() else path.name for path in (ROOT / "nest").iterdir()}
    return sorted(name for name in found if not name.startswith("_") and module_named(f"nest.{name}"))


@cache
def definitions(module: Module) -> dict[str, Symbol]:
    """Return the functions, classes and constants that a module defines, private ones too, in its order."""
    return {each.name: each for each in _definitions(module)}


def _definitions(module: Module) -> Iterator[Symbol]:
    body = module.tree.body
    for node, behind in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name, doc = node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, doc = node.target.id, _text_behind(behind)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, doc = node.targets[0].id, _text_behind(behind)
        else:
            continue
        yield Symbol(name, module, node, doc)


def exported(module: Module) -> list[str]:
    """Return what ``__all__`` of a module lists; nothing if it has none."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and module.source_of(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def symbol_of(module: Module, name: str) -> Symbol:
    """Return what a name means in a module, wherever it is defined.

    Raises
    ------
    LookupError
        If the module neither defines nor imports it.
    """
    if name in definitions(module):
        return definitions(module)[name]
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            target = module_named(str(node.module))
            if target:
                return symbol_of(target, name)
    raise LookupError(f"{module.name} has no {name}")


def public_symbols(module: Module) -> list[Symbol]:
    """Return what a module offers: what ``__all__`` lists, else what it defines and describes, or is no constant."""
    listed = exported(module)
    if listed:
        return [symbol_of(module, name) for name in listed]
    own = [each for name, each in definitions(module).items() if not name.startswith("_")]
    return [each for each in own if each.doc or isinstance(each.node, ast.FunctionDef | ast.ClassDef)]


def arguments(module: Module, node: ast.FunctionDef) -> list[Argument]:
    """Return the parameters of a function, without ``self`` and ``cls``; a bare star and slash are parameters."""
    spec = node.args
    plain = [*spec.posonlyargs, *spec.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults))
    found = [_argument(module, each, default) for each, default in zip(plain, [*missing, *spec.defaults], strict=True)]
    found = [each for each in found if each.name not in ("self", "cls")]
    if spec.vararg:
        found.append(_argument(module, spec.vararg, None, "*"))
    elif spec.kwonlyargs:
        found.append(Argument("*", ""))
    found += [_argument(module, each, default) for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    return [*found, _argument(module, spec.kwarg, None, "**")] if spec.kwarg else found


def bases_of(symbol: Symbol) -> list[tuple[str, Symbol | None]]:
    """Return the bases of a class as written, each with its definition where it is one of ours."""
    found: list[tuple[str, Symbol | None]] = []
    for each in symbol.node.bases if isinstance(symbol.node, ast.ClassDef) else ():
        text = symbol.module.source_of(each)
        try:
            found.append((text, symbol_of(symbol.module, text)))
        except LookupError:
            found.append((text, None))
    return found


def fields_of(symbol: Symbol) -> list[Argument]:
    """Return the public annotated fields of a class, inherited ones first; defaults that only a call makes are dots."""
    found = {each.name: each for _, base in bases_of(symbol) if base for each in fields_of(base)}
    module = symbol.module
    for each in symbol.node.body if isinstance(symbol.node, ast.ClassDef) else ():
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            default = module.source_of(each.value)
            made = isinstance(each.value, ast.Call) and default.startswith("field(")
            name = each.target.id
            found[name] = Argument(name, module.source_of(each.annotation), "..." if made else default)
    return list(found.values())


def members_of(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the public methods and properties that a class defines itself."""
    return [each for each in node.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]


def decorators(module: Module, node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """Return the names of decorators, without arguments."""
    return {module.source_of(each).partition("(")[0] for each in node.decorator_list}


def sections(doc: str) -> Sections:
    """Split a docstring by its numpydoc headings."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", doc, flags=re.MULTILINE)
    return {
        "": parts[0].strip(),
        **{name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)},
    }


def entries(text: str) -> list[tuple[str, str]]:
    """Return the entries of a section: what stands at the margin, and the indented text below."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line.removeprefix("    "))
    return [(head, "\n".join(lines).strip()) for head, lines in found]


def _argument(module: Module, node: ast.arg, default: ast.expr | None, stars: str = "") -> Argument:
    return Argument(stars + node.arg, module.source_of(node.annotation), module.source_of(default))


def _text_behind(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return "\n".join(line.strip() for line in node.value.value.strip().splitlines())
    return ""
