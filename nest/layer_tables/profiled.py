"""Layer profiles of other planners as tables of layers, as far as they hold what a plan needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nest.costing.setting import BYTES
from nest.errors import InvalidProblem
from nest.layer_profiles import LayerProfile, ProfiledLayer, is_layer_profile, read_layer_profiles
from nest.layer_tables.table import LayerFigures, LayerTable, Point, TableRow, listed


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody says of a profile that leaves it open; None for nothing.

    Parameters
    ----------
    layers
        How often the one layer repeats of which the operators are.
    hidden, sequence, dtype
        Width of the model, tokens of a sequence and data type: between them what goes from layer to layer.
    tensor, microbatch
        What was measured.
    """

    layers: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    dtype: str | None = None
    tensor: int | None = None
    microbatch: int | None = None

    def sent_bytes(self, microbatch: int) -> int | None:
        """Return the bytes that go to the next layer, as planners of transformers take them; None if not said."""
        if self.hidden is None or self.sequence is None:
            return None
        return int(microbatch * self.sequence * self.hidden * BYTES[self.dtype or "bf16"])


NOTHING = Said()


@dataclass(frozen=True)
class Profiled:
    """Profiles that are of one model, with what is said of them.

    Parameters
    ----------
    profiles
        With the name of the file of each.
    source
        The file or folder, as errors name it.
    said
        What they leave open.
    skipped
        Files of the folder that are no profiles.
    """

    profiles: tuple[tuple[str, LayerProfile], ...]
    source: str
    said: Said = NOTHING
    skipped: tuple[str, ...] = ()

    def where(self, name: str) -> str:
        """Return the name of a file as errors have it: nothing where the source is the file."""
        return "" if Path(self.source).name == name else name

    @property
    def form(self) -> str:
        """The format of all."""
        return self.profiles[0][1].form


def is_profiled(path: Path) -> bool:
    """Whether a path is a layer profile of another tool, or a folder that has some."""
    if path.is_dir():
        return any(is_layer_profile(each) for each in path.iterdir())
    return is_layer_profile(path)


def read_profiled(path: Path, said: Said = NOTHING) -> LayerTable:
    """Read layer profiles of other tools, a file or all files of a folder, as one table of layers.

    A table may lack what the files do not say; `LayerTable.lacking` names it.

    Raises
    ------
    InvalidProblem
        Naming the file: if a value is wrong, the files are not of one model, device and format, two say the same, or
        the format holds no layers.
    """
    if not path.is_dir():
        profiles = tuple((path.name, each) for each in read_layer_profiles(path))
        return table_of(Profiled(profiles, str(path), said))
    files = sorted(each for each in path.iterdir() if each.is_file())
    kept = [each for each in files if is_layer_profile(each)]
    found = tuple((each.name, profile) for each in kept for profile in read_layer_profiles(each))
    if not found:
        raise InvalidProblem(
            "", "a folder without layer profiles", "give one that holds files of one planner", str(path)
        )
    skipped = tuple(each.name for each in files if each not in kept)
    return table_of(Profiled(found, str(path), said, skipped))


def table_of(given: Profiled) -> LayerTable:
    """Return profiles as one table of layers; raises `InvalidProblem` as `read_profiled` does."""
    try:
        made = _MAKERS[given.form](_chosen(given))
    except InvalidProblem as fault:
        raise (fault if fault.source else fault.at(given.source)) from None
    notes = dict.fromkeys(warning for _, profile in given.profiles for warning in profile.warnings)
    if given.skipped:
        notes[f"no layer profiles: {listed(list(given.skipped))}"] = None
    return replace(made, notes=(*made.notes, *notes))


def _chosen(given: Profiled) -> Profiled:
    """Return the profiles of one model, of the sequence that is said where they have several; refuse others."""
    _, first = given.profiles[0]
    for name, profile in given.profiles:
        for what, one, other in (
            ("format", first.form, profile.form),
            ("model", first.model, profile.model),
            ("device", first.device, profile.device),
        ):
            if one != other:
                problem = f"{what} {other!r}, and {given.profiles[0][0]} has {one!r}"
                raise InvalidProblem(name, problem, "give profiles of one planner, model and device in a folder")
    lengths = sorted({profile.seq for _, profile in given.profiles if profile.seq is not None})
    said = given.said.sequence
    if len(lengths) > 1 and said not in lengths:
        what = f"sequences of {', '.join(map(str, lengths))} tokens"
        raise InvalidProblem("", what, "say with --seq which of them")
    kept = tuple(each for each in given.profiles if each[1].seq in (None, said or each[1].seq))
    if not kept:
        raise InvalidProblem("", f"no sequences of {said} tokens", f"measured are {', '.join(map(str, lengths))}")
    return replace(given, profiles=kept)


def _point(given: Profiled, profile: LayerProfile) -> Point:
    """Return what a profile was measured for: what the file says, else what is said besides, else 1 of both."""
    tensor = profile.tensor or given.said.tensor or 1
    return Point(tensor, profile.microbatch or given.said.microbatch or 1)


def _unsaid(given: Profiled) -> list[str]:
    """Return which widths and sizes the files leave open, and nobody says besides."""
    profiles, said = [profile for _, profile in given.profiles], given.said
    found = []
    if said.tensor is None and given.form in _BY_WIDTH and any(each.tensor is None for each in profiles):
        found.append("of which tensor width it is, is not said (--tensor)")
    if said.microbatch is None and any(each.microbatch is None for each in profiles):
        found.append("of which microbatch it is, is not said (--microbatch)")
    return found


_BY_WIDTH = ("Metis JSON", "Aceso CSV")
"""Formats of which there are files of several tensor widths, told by their names."""


def _metis(given: Profiled) -> LayerTable:
    """Return the table of files of Metis: times of both passes, and memory that the state is part of."""
    _refuse_layers(given)
    rows = []
    for name, profile in given.profiles:
        point = _point(given, profile)
        last = len(profile.layers) - 1
        for at, layer in enumerate(profile.layers):
            sent = given.said.sent_bytes(point.microbatch) if layer.output_bytes is None else layer.output_bytes
            figures = LayerFigures(
                together_s=layer.step_s,
                weight_bytes=layer.parameter_bytes,
                memory_bytes=layer.memory_bytes,
                output_bytes=None if at == last else sent,
            )
            rows.append(TableRow(layer.name, point, figures, where=given.where(name)))
    made = _table(given, rows)
    sent = all(made.at(point)[0].figures.output_bytes is not None for point in made.points)
    return made if sent else replace(made, unsaid=(*made.unsaid, "what layers send is not said (--seq and --hidden)"))


def _pipedream(given: Profiled) -> LayerTable:
    """Return the table of a graph of PipeDream: what a node keeps is its output, weights are of four bytes."""
    _refuse_layers(given)
    (name, profile), *more = given.profiles
    if more:
        raise InvalidProblem(more[0][0], "a second graph", "give one file")
    point = Point(1, _point(given, profile).microbatch)
    rows = [TableRow(each.name, point, _apart(each), each.kind, where=given.where(name)) for each in profile.layers]
    note = "what a node keeps is taken to be its output, as PipeDream counts it; weights to be in fp32"
    return replace(_table(given, rows), edges=profile.edges, recipe="fp32", notes=(note,))


def _aceso(given: Profiled) -> LayerTable:
    """Return the table of operators of Aceso: those of the layer are summed, and repeat as often as is said."""
    rows: list[TableRow] = []
    refused = {}
    for name, profile in given.profiles:
        point = _point(given, profile)
        rows += _aceso_rows(given, profile.layers, point, name)
        if point.tensor > 1:
            refused[point] = "times of operators alone: what the tensor ranks exchange is in no column"
    made, note = _table(given, rows), f"operators {_OPERATOR}... are summed to one layer"
    repeats = () if given.said.layers else ("how often the layer repeats, is not said (--layers)",)
    return replace(made, refused=refused, notes=(note,), unsaid=(*made.unsaid, *repeats))


_OPERATOR = "enc-"
"""What operators of the layer that repeats are named by."""


def _aceso_rows(given: Profiled, layers: Sequence[ProfiledLayer], point: Point, name: str) -> list[TableRow]:
    inside = [at for at, layer in enumerate(layers) if layer.name.startswith(_OPERATOR)]
    if not inside or inside != list(range(inside[0], inside[-1] + 1)):
        what = f"no one run of operators {_OPERATOR}...: which of them repeat, is not said"
        raise InvalidProblem(name, what, "give a table of layers: nest show FILE -o layers.csv writes one")
    one = layers[inside[0] : inside[-1] + 1]
    before, behind = (
        [TableRow(each.name, point, _apart(each), each.name, where=given.where(name)) for each in others]
        for others in (layers[: inside[0]], layers[inside[-1] + 1 :])
    )
    whole = LayerFigures(
        sum(each.forward_s or 0.0 for each in one),
        sum(each.backward_s or 0.0 for each in one),
        weight_bytes=sum(each.parameter_bytes or 0 for each in one),
        kept_bytes=sum(each.activation_bytes or 0 for each in one),
        output_bytes=one[-1].output_bytes,
    )
    return [
        *before,
        TableRow("layer", point, whole, "layer", count=given.said.layers or 1, where=given.where(name)),
        *behind,
    ]


def _galvatron(given: Profiled) -> LayerTable:
    """Return the table of computation times of Galvatron, which lack all but the forward pass."""
    rows = []
    for name, profile in given.profiles:
        point = _point(given, profile)
        for layer in profile.layers:
            count = 1 if layer.name == "other" else given.said.layers or 1
            rows.append(TableRow(layer.name, point, _apart(layer), count=count, where=given.where(name)))
    return _table(given, rows)


def _deepspeed(given: Profiled) -> LayerTable:
    """Return the table of what DeepSpeed's profiler prints: a model as one layer."""
    _refuse_layers(given)
    rows = []
    for name, profile in given.profiles:
        point = _point(given, profile)
        rows += [TableRow(each.name, point, _apart(each), where=given.where(name)) for each in profile.layers]
    return _table(given, rows)


def _trace(given: Profiled) -> LayerTable:
    """Refuse a trace."""
    name, _ = given.profiles[0]
    what = "a trace has kernels, and says of none which layer and pass it belongs to"
    raise InvalidProblem(given.where(name), what, "give a table of layers")


def _simai(given: Profiled) -> LayerTable:
    """Refuse a workload."""
    name, _ = given.profiles[0]
    what = "a workload has times and messages, and no bytes of weights or of what is kept"
    raise InvalidProblem(given.where(name), what, "give a table of layers")


def _estimates(given: Profiled) -> LayerTable:
    """Refuse estimates of operators."""
    name, _ = given.profiles[0]
    what = "latencies of operators by number, without their order, weights or what they keep"
    raise InvalidProblem(given.where(name), what, "give a table of layers")


def _apart(layer: ProfiledLayer) -> LayerFigures:
    """Return the figures of a layer whose passes were timed apart, as far as they are known."""
    return LayerFigures(
        layer.forward_s,
        layer.backward_s,
        parameters=layer.parameters,
        weight_bytes=layer.parameter_bytes,
        kept_bytes=layer.activation_bytes,
        output_bytes=layer.output_bytes,
    )


def _refuse_layers(given: Profiled) -> None:
    if given.said.layers is not None:
        raise InvalidProblem(
            "--layers", f"{given.said.layers}: the profile says which layers there are", "leave it out"
        )


def _table(given: Profiled, rows: Sequence[TableRow]) -> LayerTable:
    _, first = given.profiles[0]
    name = first.model or Path(given.source).stem
    return LayerTable(name, tuple(rows), given.source, unsaid=tuple(_unsaid(given)), device=first.device or "")


_MAKERS: Mapping[str, Callable[[Profiled], LayerTable]] = {
    "Metis JSON": _metis,
    "PipeDream graph.txt": _pipedream,
    "Aceso CSV": _aceso,
    "Galvatron computation JSON": _galvatron,
    "DeepSpeed flops profiler": _deepspeed,
    "torch profiler trace": _trace,
    "SimAI workload": _simai,
    "operator estimates of arXiv 2603.06798": _estimates,
}
"""What makes a table of each format."""
