"""A plan as it is typed: the model from a file or a family, widths and sizes from options or from the model's file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nest.costing import Assumed, Framework, Layout, Recipe, Setting
    from nest.families import Architecture, Description
    from nest.families.description import Stated
    from nest.files.cluster_file import ClusterText
    from nest.hardware import Hardware

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
    if path is not None:
        return _of_file(path, _given(options))
    from nest.families import Description
    from nest.families.hyperparameters import read_hyperparameters

    return Description("family", read_hyperparameters(typed_family(options)))


def _given(options: Mapping[str, Any]) -> dict[str, int]:
    return {name: options[name] for name in NUMBERS if options[name] is not None}


def typed_family(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a family and its numbers, as they are typed, as the table of a model; raises as `asked_model` does."""
    given = _given(options)
    for name in ("layers", "hidden", "heads"):
        if name not in given:
            raise click.UsageError(f"--family needs --{name}, too")
    if "top_k" in given and options["family"] != "moe":
        raise click.UsageError("--top-k goes with --family moe")
    sequence = {"seq": options["seq"]} if options["seq"] else {}
    return {"family": options["family"], **given, **sequence}


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


def reserve_bytes(options: Mapping[str, Any]) -> int | None:
    """Return the bytes of ``--reserve``; None where it is not typed.

    Raises
    ------
    click.UsageError
        If it is no finite number.
    """
    asked: float | None = options["reserve"]
    if asked is None:
        return None
    if not isfinite(asked * 2.0**30):
        raise click.UsageError(f"--reserve {asked}: give a number of GiB from 0")
    return int(asked * 2.0**30)


OF_NETWORKS = ("device", "like", "gpus_per_node", "root", "topology")
"""What a file of a network may leave open; options and keys of our cluster files have these names."""


def asked_cluster(source: str, options: Mapping[str, Any]) -> Hardware:
    """Return the cluster: by name, from a file of ours, or from one that another program wrote.

    Raises
    ------
    click.UsageError
        If what goes with a network is typed beside something else.
    InvalidProblem
        If the name or the file is wrong, or does not say everything.
    """
    from nest.files.cluster_file import cluster_of, read_cluster

    given = network_text(source, options)
    return read_cluster(source) if given is None else cluster_of(given)


def network_text(source: str, options: Mapping[str, Any]) -> ClusterText | None:
    """Return a file of a network, or of a system, as a cluster file of ours would have it; None where there is none.

    Raises
    ------
    click.UsageError
        If nothing says what its devices are, or what goes with a network is typed beside something else.
    InvalidProblem
        If the system that it is like is not known.
    """
    from nest.files.cluster_file import SCHEMA, ClusterText
    from nest.hardware import system_named

    system = _system_text(source, options)
    if system is not None:
        return system
    if options["hostfile"] is not None:
        raise click.UsageError(f"--hostfile goes with a cluster file of Metis, and --cluster {source} is none")
    text = _network(Path(source))
    typed = {name: options[name] for name in OF_NETWORKS if options[name] is not None}
    if text is None:
        if typed:
            option = f"--{next(iter(typed)).replace('_', '-')}"
            raise click.UsageError(f"{option} goes with a file of a network, and --cluster {source} is none")
        return None
    if "device" not in typed and "like" not in typed:
        what = "--device NAME, or --like SYSTEM for its links, too"
        raise click.UsageError(f"--cluster {source} describes a network: say of which devices with {what}")
    device = typed.get("device") or system_named(typed["like"]).device
    path = Path(source)
    keys = {"schema": SCHEMA, "network": path.name, **typed, "device": device}
    lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]  # texts of JSON are texts of TOML
    return ClusterText(path.name, "\n".join(lines), text, source, source)


def _system_text(source: str, options: Mapping[str, Any]) -> ClusterText | None:
    """Return a cluster file of ours that says what another planner's description does, or None where there is none.

    Behind the name of such a file may stand how many devices there are, as behind that of a cluster.
    """
    from nest.errors import InvalidProblem
    from nest.files.cluster_file import SCHEMA, ClusterText
    from nest.files.cluster_systems import Wanted, system_kind, system_text
    from nest.files.disk import read_text

    name, _, digits = source.rpartition(":")
    counted = bool(name) and digits.isdecimal() and Path(name).is_file() and not Path(source).exists()
    path = Path(name if counted else source)
    if not path.is_file():
        return None
    text = read_text(path, InvalidProblem)
    kind = "" if SCHEMA in text else system_kind(text)
    if not kind:
        return None
    for option in ("like", "root", "topology"):
        if options[option] is not None:
            raise click.UsageError(f"--{option}: {path} is a system of {kind}, with links of its own; leave it out")
    hosts = "" if options["hostfile"] is None else read_text(options["hostfile"], InvalidProblem)
    count = int(digits) if counted else None
    wanted = Wanted(count, options["device"] or "", options["gpus_per_node"], hosts)
    try:
        return ClusterText(path.stem, system_text(kind, text, wanted, path.name.partition(".")[0]), source=str(path))
    except InvalidProblem as error:
        raise error.at(str(path)) from None


def _network(path: Path) -> str | None:
    """Return the text of a file that describes a network, and is no cluster file of ours; None for all others."""
    from nest.errors import InvalidProblem
    from nest.files.cluster_file import SCHEMA
    from nest.files.disk import read_text
    from nest.networks import kind_of

    if not path.is_file() or path.suffix.lower() == ".toml":
        return None
    text = read_text(path, InvalidProblem)
    try:
        return text if SCHEMA not in text and not _is_toml(text) and kind_of(text) else None
    except InvalidProblem:
        return None


def _is_toml(text: str) -> bool:
    """Whether a text is TOML, as of all descriptions of clusters only those of ours are."""
    import tomllib

    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


@dataclass(frozen=True)
class AskedPlan:
    """What was typed, else what the model's file says, else what is usual.

    Parameters
    ----------
    options
        By name, as click has them.
    description
        The model's file; None where the model is a table of layers, which says nothing of a plan.
    hardware
        The cluster.
    """

    options: Mapping[str, Any]
    description: Description | None
    hardware: Hardware

    @property
    def _stated(self) -> Mapping[str, Stated]:
        return {} if self.description is None else self.description.settings

    @property
    def taken(self) -> dict[str, Any]:
        """What the model's file decides, since it was not typed."""
        stated, options = self._stated, self.options
        names = {"sequence": "seq", "target_sequence": "", "devices": ""}
        open_ = {name for name in stated if options.get(names.get(name, name)) is None} - {"devices"}
        if "stage_layers" in stated and not self._split():
            open_ -= {"stage_layers"}
        if self._said("tensor", 1) == 1:
            open_ -= {"sequence_parallel"}
        return {name: value for name, value in stated.items() if name in open_}

    @cached_property
    def assumed(self) -> Assumed | None:
        """What the software is taken to be, and why; None where it was typed, or nothing is said of the model."""
        from nest.costing import assumed_framework

        if self.options["framework"] is not None or self.description is None:
            return None
        return assumed_framework(
            self.description.model,
            self.hardware.device,
            self._said("zero", 0),
            self._said("context", 1),
            stated=self.description.software,
            system=self.hardware.software,
        )

    @property
    def framework(self) -> Framework:
        """What the software does: of the framework that was typed, or is assumed."""
        from nest.costing import FRAMEWORKS, framework_named

        if self.assumed is not None:
            return self.assumed.framework
        typed = self.options["framework"]
        return FRAMEWORKS[0] if typed is None else framework_named(typed)

    def setting(self) -> Setting:
        """Return widths and sizes inside a stage.

        Raises
        ------
        click.UsageError
            If something is missing.
        InvalidProblem
            If it does not fit together.
        """
        from nest.costing import Setting

        assert self.description is not None, "a table of layers has no setting"
        check_sequence(self.options["seq"], self.description.model)
        tensor, framework = self._said("tensor", 1), self.framework
        return Setting(
            self._needed("seq", "sequence", self.description.model.sequence),
            self._said("microbatch", 1),
            tensor,
            self._shares_sequence(tensor),
            self._said("context", 1),
            self._said("context_kind", "ring"),
            self._said("expert", 1),
            expert_tensor(self.options, self._stated, tensor),
            flash=self._said("flash", framework.fused_attention),
            dtype=self._said("dtype", "bf16"),
            padding=self._said("padding", 128),
            lengths=self._lengths(),
            framework=framework,
            imbalance=self.options["imbalance"],
            capacity=self.options["capacity"],
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

        stages, kind, again = (
            self._said("pipeline", 1),
            self._said("recompute", "none"),
            self.options["recompute_layers"],
        )
        if again is not None and kind == "none":
            raise click.UsageError("--recompute-layers goes with --recompute selective or full")
        if self.options["schedule"] == "zb-h1" and kind != "none":
            raise click.UsageError(f"--recompute {kind} does not go with --schedule zb-h1, which keeps all")
        again = self._said("recompute_layers", None) if kind != "none" else None
        zero = self._said("zero", 0)
        if self.options["zero_groups"] is not None and not zero:
            raise click.UsageError("--zero-groups goes with --zero 1, 2 or 3")
        return Layout(
            self._needed("global_batch", "global_batch"),
            self._replicas(),
            stages,
            self._chunks(stages),
            zero=zero,
            zero_groups=self._said("zero_groups", 1) if zero else 1,
            layers=self._split(),
            recompute=kind,
            recomputed=() if again is None else (again,) * stages,
            reserve=reserve_bytes(self.options) or 0,
            schedule=self.options["schedule"],
            first_class=_device_name(self.options["first_class"] or ""),
        )

    def _chunks(self, stages: int) -> int:
        """Return the chunks of each stage: those of the file only where the schedule that was typed has some."""
        typed, schedule = self.options["virtual"], self.options["schedule"]
        if schedule not in (None, "interleaved"):
            return typed or 1
        said = self._said("virtual", 1) if stages > 1 or typed else 1
        return 2 if schedule == "interleaved" and said == 1 and typed is None else int(said)

    def recipe(self) -> Recipe:
        """Return the bytes of a parameter; raises `InvalidProblem` if the recipe is none."""
        from nest.costing import recipe_named

        return recipe_named(self._said("recipe", "mixed"))

    def _split(self) -> tuple[int, ...]:
        """Return the layers of each stage or part; the file's only where its stages and their chunks are kept."""
        typed = self.options["stage_layers"]
        if typed is not None:
            return tuple(typed)
        settings = self._stated
        kept = all(self._said(name, 1) == settings.get(name, 1) for name in ("pipeline", "virtual"))
        stated = settings.get("stage_layers")
        return stated if isinstance(stated, tuple) and kept else ()

    def _replicas(self) -> int:
        names = ("tensor", "context", "expert", "pipeline")
        widths = {name: self._said(name, 1) for name in names}
        one = prod(widths.values())
        have = self.hardware.cluster.devices
        data = self._said("data", max(1, have // one))
        typed = self.options["data"] is not None
        if data * one != have and not (typed and data * one < have):
            what = " x ".join(f"{name} {width}" for name, width in {**widths, "data": data}.items())
            found = f"{what} are {data * one} devices, and the cluster has {have}"
            found += _convention(widths["expert"], data, have // one)
            idle = " or say with --data how many replicas there are" if data * one < have else ""
            raise click.UsageError(f"{found}: change a width, or the number of devices,{idle}".rstrip(","))
        return int(data)

    def _said(self, name: str, usual: Any) -> Any:
        """Return what was typed, else what the file says, else what is usual."""
        value = self.options[name]
        return self._stated.get(name, usual) if value is None else value

    def _shares_sequence(self, tensor: int) -> bool:
        """Return whether the sequence is shared; a file that says so means widths above 1."""
        typed = self.options["sequence_parallel"]
        return tensor > 1 and self._said("sequence_parallel", False) is True if typed is None else bool(typed)

    def _needed(self, name: str, said: str, usual: int = 0) -> int:
        from nest.families.description import number

        value = self.options[name] or number(self._stated, said, usual)
        if not value:
            raise click.UsageError(f"--{name.replace('_', '-')} is missing, and the model does not say it")
        return int(value)

    def _lengths(self) -> tuple[tuple[str, int], ...]:
        target = self._stated.get("target_sequence")
        return (("text", int(target)),) if isinstance(target, int) and target else ()


def _convention(expert: int, data: int, right: int) -> str:
    """Return how replicas count beside expert ranks, and what was probably meant, where there are such ranks."""
    if expert == 1:
        return ""
    meant = f": for --data {data} of Megatron-LM give --data {right}" if data == right * expert else ""
    return f" (replicas count beside expert ranks here, in Megatron-LM expert ranks are some of them{meant})"


def _device_name(typed: str) -> str:
    """Return the name of a device as the catalogue has it, where it has one."""
    from nest.errors import InvalidProblem
    from nest.hardware import device_named

    try:
        return device_named(typed).name if typed else ""
    except InvalidProblem:
        return typed


def expert_tensor(options: Mapping[str, Any], stated: Mapping[str, Stated], tensor: int) -> int:
    """Return the devices of one expert; a file that cuts experts cuts them as wide as the tensor width that counts."""
    from nest.families.description import number

    typed, said = options["expert_tensor"], number(stated, "expert_tensor")
    if typed is not None:
        return int(typed)
    return tensor if 1 < said == number(stated, "tensor") else said
