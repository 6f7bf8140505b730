"""A plan as it is typed: the model from a file or a family, widths and sizes from options or from the model's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nest.costing import Layout, Setting
    from nest.families import Architecture, Description

NUMBERS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
"""Hyperparameters that have an option of their name."""


def asked_model(path: Path | None, options: Mapping[str, Any]) -> Description:
    """Return the model, from a file or a family.

    Raises
    ------
    click.UsageError
        If neither is given, both are, or numbers without a family.
    InvalidProblem
        If the file or the numbers are wrong.
    """
    if (path is None) == (options["family"] is None):
        raise click.UsageError("give one of --model and --family")
    given = {name: options[name] for name in NUMBERS if options[name] is not None}
    return _of_family(options, given) if path is None else _of_file(path, given)


def _of_family(options: Mapping[str, Any], given: Mapping[str, int]) -> Description:
    from nest.families import Description
    from nest.families.hyperparameters import read_hyperparameters

    for name in ("layers", "hidden", "heads"):
        if name not in given:
            raise click.UsageError(f"--family needs --{name}, too")
    if "top_k" in given and options["family"] != "moe":
        raise click.UsageError("--top-k goes with --family moe")
    sequence = {"seq": options["seq"]} if options["seq"] else {}
    return Description("family", read_hyperparameters({"family": options["family"], **given, **sequence}))


def _of_file(path: Path, given: Mapping[str, int]) -> Description:
    from nest.errors import InvalidProblem
    from nest.families import describe
    from nest.files.disk import read_text

    others = [name for name in given if name != "vocab"]
    if others:
        raise click.UsageError(f"--{others[0].replace('_', '-')} goes with --family, not with --model")
    try:
        return describe(read_text(path, InvalidProblem), given.get("vocab"))
    except InvalidProblem as error:
        raise (error if error.source else error.at(str(path))) from None


def check_sequence(typed: int | None, model: Architecture) -> None:
    """Refuse ``--seq`` where the model itself says how long each of its sequences is.

    Raises
    ------
    click.UsageError
        If no stream has the typed length.
    """
    own = [stream.tokens for stream in model.streams]
    if typed is not None and all(own) and typed not in own:
        raise click.UsageError(f"--seq {typed}: the model has sequences of {own[-1]} tokens; leave it out")


def reserve_bytes(options: Mapping[str, Any]) -> int:
    """Return the bytes of ``--reserve``; 0 where it is not typed.

    Raises
    ------
    click.UsageError
        If it is no finite number.
    """
    asked = options["reserve"] or 0
    if not isfinite(asked):
        raise click.UsageError(f"--reserve {asked}: give a number of GiB from 0")
    return int(asked * 2**30)


@dataclass(frozen=True)
class AskedPlan:
    """What was typed, else what the model's file says, else what is usual.

    Parameters
    ----------
    options
        By name, as click has them.
    description
        The model's file.
    devices
        Of the cluster.
    """

    options: Mapping[str, Any]
    description: Description
    devices: int

    def setting(self) -> Setting:
        """Return widths and sizes inside a stage.

        Raises
        ------
        click.UsageError
            If something is missing.
        InvalidProblem
            If it does not fit together.
        """
        from nest.costing import Setting, framework_named

        flash = self.options["flash"]
        check_sequence(self.options["seq"], self.description.model)
        taken = ("sequence_parallel", "context_kind", "expert_tensor", "imbalance", "capacity", "dtype", "padding")
        return Setting(
            self._needed("seq", "sequence", self.description.model.sequence),
            self._number("microbatch"),
            self._number("tensor"),
            context=self._number("context"),
            expert=self._number("expert"),
            flash=self.options["recompute"] != "selective" if flash is None else flash,
            lengths=self._lengths(),
            framework=framework_named(self.options["framework"]),
            **{name: self.options[name] for name in taken},
        )

    def layout(self) -> Layout:
        """Return replicas, stages and what is spread over them.

        Raises
        ------
        click.UsageError
            If something is missing, or the widths do not make up the devices.
        InvalidProblem
            If it does not fit together.
        """
        from nest.costing import Layout

        stages, again = self._number("pipeline"), self.options["recompute_layers"]
        if again is not None and self.options["recompute"] == "none":
            raise click.UsageError("--recompute-layers goes with --recompute selective or full")
        return Layout(
            self._needed("global_batch", "global_batch"),
            self._replicas(),
            stages,
            self._number("virtual"),
            zero=self.options["zero"],
            recompute=self.options["recompute"],
            recomputed=() if again is None else (again,) * stages,
            reserve=reserve_bytes(self.options),
        )

    def _replicas(self) -> int:
        names = ("tensor", "context", "expert", "pipeline")
        widths = {name: self._number(name) for name in names}
        one = 1
        for width in widths.values():
            one *= width
        data = self._number("data", usual=max(1, self.devices // one))
        if data * one != self.devices:
            what = " x ".join(f"{name} {width}" for name, width in {**widths, "data": data}.items())
            found = f"{what} are {data * one} devices, and the cluster has {self.devices}"
            raise click.UsageError(f"{found}: change a width, or the number of devices")
        return data

    def _number(self, name: str, *, usual: int = 1) -> int:
        value = self.options[name]
        return int(value if value is not None else self.description.settings.get(name, usual))

    def _needed(self, name: str, said: str, usual: int = 0) -> int:
        value = self.options[name] or self.description.settings.get(said, usual)
        if not value:
            raise click.UsageError(f"--{name.replace('_', '-')} is missing, and the model does not say it")
        return int(value)

    def _lengths(self) -> tuple[tuple[str, int], ...]:
        target = self.description.settings.get("target_sequence")
        return (("text", target),) if target else ()
