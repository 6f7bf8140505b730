"""What a plan is a plan of, and what computed it: keys that a plan file may have beside the plan."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType
from msgspec import field as key_field

from nest.errors import InvalidPlan
from nest.files.document import Document
from nest.files.faults import key
from nest.files.limits import Table, Text

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="a SHA-256, 64 hexadecimal digits")]


class OriginTable(Table):
    """The problem of a plan: a whole run, a whole problem or the file of one, and what was typed to change it."""

    run: Annotated[dict[str, object], Meta(description="a run, as run files have it")] | UnsetType = UNSET
    text: Annotated[str, Meta(min_length=1, description="the text of a problem file of ours")] | UnsetType = UNSET
    file: Annotated[str, Meta(min_length=1, description="the path of a problem file")] | UnsetType = UNSET
    name: Text = ""
    sha256: Digest | UnsetType = UNSET
    preset: Annotated[str, Meta(description="the name of a preset")] | UnsetType = UNSET
    settings: Annotated[list[Text], Meta(description="a list of settings, as in zero=none")] = key_field(
        default_factory=list
    )


Provenance = Annotated[dict[str, Text], Meta(description="a table of versions")]


@dataclass(frozen=True)
class Origin:
    """The problem of a plan, as its file says it.

    Parameters
    ----------
    run
        A whole run, which names no other file (`nest.runs`); None where it is none.
    text
        A whole problem in our format; empty where it is none.
    file, name, sha256
        Of a problem file: its path (in a plan file from the plan's folder or from the root), the name of the problem,
        and the SHA-256 of its content.
    preset, settings
        What was typed to change the problem; None and nothing where it was taken as it is.

    Raises
    ------
    InvalidPlan
        If there is not exactly one of a run, a text and a file.
    """

    run: Mapping[str, object] | None = None
    text: str = ""
    file: str = ""
    name: str = ""
    sha256: str = ""
    preset: str | None = None
    settings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        given = {"run": self.run is not None, "text": bool(self.text), "file": bool(self.file)}
        names = [name for name, has in given.items() if has]
        if len(names) != 1:
            what = f"both {' and '.join(names)}" if names else "none of run, text and file"
            raise InvalidPlan("problem", what, "give one of run, text and file, or leave the key out")
        if self.file and not self.sha256:
            raise InvalidPlan("problem.sha256", "missing", "give the SHA-256 of the problem file")


def digest(path: Path) -> str:
    """Return the SHA-256 of what a file holds, in hexadecimal; raises `OSError` if it cannot be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seen_from(origin: Origin, plan: Path) -> Origin:
    """Return the same with the path of its file as a plan file has it.

    That is the path from the plan's folder where they share one below the root, else the path from the root.
    """
    if not origin.file:
        return origin
    target, folder = Path(origin.file).resolve(), plan.resolve().parent
    apart = target.anchor != folder.anchor or os.path.commonpath([target, folder]) == target.anchor
    return replace(origin, file=str(target) if apart else Path(os.path.relpath(target, folder)).as_posix())


def origin_document(origin: Origin) -> dict[str, Any]:
    """Return the value of a plan's key ``problem``."""
    if origin.run is not None:
        document: dict[str, Any] = {"run": dict(origin.run)}
    elif origin.text:
        document = {"text": origin.text}
    else:
        document = {"file": origin.file, "name": origin.name, "sha256": origin.sha256}
    changes: dict[str, Any] = {} if origin.preset is None else {"preset": origin.preset}
    return document | changes | ({"settings": list(origin.settings)} if origin.settings else {})


def origin_from(table: OriginTable | UnsetType, document: Document, where: str) -> Origin | None:
    """Return the problem that a plan file names, None where it names none; raises `InvalidPlan`, naming the file."""
    if table is UNSET:
        return None
    names = ("text", "file", "sha256")
    texts = {name: "" if (value := getattr(table, name)) is UNSET else str(value) for name in names}
    try:
        return Origin(
            None if table.run is UNSET else table.run,
            name=table.name,
            preset=None if table.preset is UNSET else table.preset,
            settings=tuple(table.settings),
            **texts,
        )
    except InvalidPlan as fault:
        document.fail(key(where, fault.where), fault.problem, fault.remedy)
