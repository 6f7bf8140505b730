"""Which submodules of a module are its layers, and which of these are blocks that repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class Unit:
    """A submodule that runs as one layer.

    Parameters
    ----------
    path
        Its name in the module.
    block
        Whether it is one of several in a container, or of several siblings of one class.
    """

    path: str
    block: bool


def units_of(module: Any) -> dict[str, Unit]:
    """Return the layers of a module by path: blocks where it has any, else the smallest submodules.

    A container (`ModuleList`, `Sequential`) of submodules that have submodules themselves is a row of blocks, the
    outermost one counting: experts inside a block are part of it. So are siblings of one class. A member that is
    nothing but a wrapper of a row is opened, as is a whole network among the members of a `Sequential`.
    """
    found = {unit.path: unit for unit in _units("", module)}
    if any(unit.block for unit in found.values()):
        return found
    return {path: Unit(path, False) for path, child in module.named_modules() if path and not _children(child)}


def _units(path: str, module: Any) -> Iterator[Unit]:
    if _is_row(module):
        for name, child in _children(module).items():
            inner = _join(path, name)
            opened = _is_row(child) or _is_opened(child, module)
            yield from _units(inner, child) if opened else (Unit(inner, bool(_children(child))),)
    elif _has_blocks(module):
        alike = _alike(module)
        for name, child in _children(module).items():
            inner = _join(path, name)
            yield from (Unit(inner, True),) if name in alike else _units(inner, child)
    else:
        yield Unit(path, False)


def _is_row(module: Any) -> bool:
    """Whether a module is a container of submodules that have submodules themselves."""
    return isinstance(module, CONTAINERS) and any(map(_children, _children(module).values()))


def _is_opened(child: Any, row: Any) -> bool:
    """Whether a member of a row is no block, but holds blocks.

    A wrapper has a single child with submodules, a row of blocks. Blocks with submodules of their own are taken for
    blocks in any case. Others may be what one block consists of: experts, or a convolution with its norm.
    """
    wrapped = [each for each in _children(child).values() if _children(each)]
    rows = wrapped if len(wrapped) == 1 else []
    kinds = [type(each) for each in _children(row).values() if _children(each)]
    if not isinstance(row, nn.Sequential) or kinds.count(type(child)) > 1:
        return any(_repeats(each, deep=True) for each in rows)
    return any(map(_repeats, rows)) or any(_repeats(each, deep=True) for each in child.modules())


def _repeats(module: Any, *, deep: bool = False) -> bool:
    """Whether a module is a row with two members of one class; ``deep``: whose submodules have submodules, too."""
    if not _is_row(module):
        return False
    members = [each for each in _children(module).values() if _children(each)]
    if deep:
        members = [each for each in members if any(map(_children, _children(each).values()))]
    return any(count > 1 for count in Counter(map(type, members)).values())


def _has_blocks(module: Any) -> bool:
    """Whether there are blocks inside: a row of them, or siblings of one class."""
    return _is_row(module) or bool(_alike(module)) or any(map(_has_blocks, _children(module).values()))


def _alike(module: Any) -> set[str]:
    """Return the names of children that share their class with a sibling, and have submodules but no row of blocks."""
    plain = {
        name: type(child)
        for name, child in _children(module).items()
        if _children(child) and not isinstance(child, CONTAINERS) and not _has_row(child)
    }
    counts = Counter(plain.values())
    return {name for name, kind in plain.items() if counts[kind] > 1}


def _has_row(module: Any) -> bool:
    return _is_row(module) or any(map(_has_row, _children(module).values()))


def _children(module: Any) -> dict[str, Any]:
    return {name: child for name, child in module.named_children() if name}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
