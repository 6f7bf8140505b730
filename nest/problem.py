"""The declarative problem: model, cluster, training, choices, preset."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from math import inf, isqrt
from typing import ClassVar, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from nest.cluster import Cluster, Technology
from nest.errors import InvalidProblem
from nest.forms import Form, Variant
from nest.graph import LayerGraph
from nest.presets import PAPER, Preset, ScheduleName
from nest.training import HELD, OPTIMIZER_COPIES, Copies, Optimizer, Training, exchanging_type
from nest.units import Number

__all__ = [
    "COUNTED",
    "HELD",
    "OPTIMIZER_COPIES",
    "RECOMPUTE",
    "Allowed",
    "Choices",
    "Copies",
    "Form",
    "Optimizer",
    "Problem",
    "Recompute",
    "SideConstraint",
    "Training",
    "Variant",
    "exchanging_type",
    "require_chain",
]

Allowed: TypeAlias = frozenset[int] | None
"""Values a choice may take; None where every value is allowed."""

Recompute: TypeAlias = Literal["none", "selective", "full"]
"""What is computed again before the backward pass: nothing, the attention core (arXiv 2205.05198, section 5), all."""

RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
"""The kinds of recomputation, that which keeps the most first."""


BUFFERED: frozenset[ScheduleName] = frozenset({"1f1b", "interleaved"})
"""Schedules whose plans are priced where stages hold what crosses their boundaries (`Training.buffers_boundaries`)."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the solver may choose.

    Parameters
    ----------
    tensor, expert, context, microbatch
        Allowed values of the variant's widths.
    sequence
        Whether sequence parallel is on; None leaves it free.
    replicas, stages
        Allowed numbers of pipeline replicas and stages.
    zero
        Allowed ZeRO types of a stage, of 0 to 3; 0 is no sharding.
    zero_degree
        Allowed sharding degrees; None allows every power of two inside a stage, and every degree over replicas.
    recompute
        Whether every stage but the last recomputes its forward pass, ``"full"``, or not, ``"none"``, where the preset
        leaves that to the choices.
    stage_recompute
        What a stage may recompute, where the preset leaves that to each stage.
    recomputed
        Allowed numbers of layers of a stage that recompute, if any do; where fewer can, all of them do so.
    hybrid
        Whether ZeRO may spread over groups of replicas, and not over all of them only, where it spreads over replicas.
    stage_tensor
        Tensor widths of which a plan may give each stage its own; None where all stages are as wide as the variant.
    shard_inside
        How many times as many devices a plan may give each stage, between which it is sharded; None where none is
        sharded inside.
    splits_batch
        Whether these devices share the sequences of a microbatch, too; None leaves it to each stage.
    price_at_most
        What the chosen technologies of the network may cost together, in the unit of their menus.
    schedules
        In which orders stages may take their passes, of those that the preset prices.
    chunks
        Allowed numbers of chunks of a stage, where it is interleaved.
    """

    tensor: Allowed = None
    expert: Allowed = None
    context: Allowed = None
    microbatch: Allowed = None
    sequence: bool | None = None
    replicas: Allowed = None
    stages: Allowed = None
    zero: frozenset[int] = frozenset({0, 1, 2, 3})
    zero_degree: Allowed = None
    recompute: Recompute = "none"
    stage_recompute: frozenset[Recompute] | None = None
    recomputed: Allowed = None
    hybrid: bool = True
    stage_tensor: Allowed = None
    shard_inside: Allowed = None
    splits_batch: bool | None = False
    price_at_most: Number | None = None
    schedules: frozenset[ScheduleName] = frozenset({"1f1b"})
    chunks: Allowed = None

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, frozenset) and not value:
                raise InvalidProblem(f"choices.{spec.name}", "no value is allowed", "allow at least one")
        if self.recompute == "selective":
            remedy = "give 'none' or 'full'; what each stage may recompute is stage_recompute"
            raise InvalidProblem("choices.recompute", "'selective'", remedy)
        if not self.zero <= {0, 1, 2, 3}:
            raise InvalidProblem("choices.zero", f"{sorted(self.zero)}", "ZeRO types are 0, 1, 2 and 3")
        if self.price_at_most is not None and not 0 <= self.price_at_most < inf:
            raise InvalidProblem("choices.price_at_most", f"{self.price_at_most!r}", "give a finite number from 0")
        for name in COUNTED:
            if min(getattr(self, name) or {1}) < 1:
                raise InvalidProblem(f"choices.{name}", f"{min(getattr(self, name))}", "give whole numbers from 1")

    def admits(self, variant: Variant) -> bool:
        """Whether the variant is among the allowed ones."""
        return (self.tensor is None or variant.tensor in self.tensor) and self._admits_rest(variant)

    def _admits_rest(self, variant: Variant) -> bool:
        for name in ("expert", "context", "microbatch"):
            allowed: Allowed = getattr(self, name)
            if allowed is not None and getattr(variant, name) not in allowed:
                return False
        return self.sequence is None or variant.sequence == self.sequence

    @property
    def uneven(self) -> Mapping[str, Allowed]:
        """What each stage may have of its own, by the names of the choices; nothing where all stages are alike."""
        given = {"stage_tensor": self.stage_tensor, "shard_inside": self.shard_inside}
        return {name: values for name, values in given.items() if values is not None}

    @property
    def splits(self) -> tuple[int, ...]:
        """Into how many parts stages that are sharded inside may split a microbatch; 1 among them."""
        degrees = (self.shard_inside or frozenset()) - {1} if self.splits_batch is not False else ()
        return (1, *sorted(degrees))

    def with_parts(self, microbatches: Collection[int]) -> frozenset[int]:
        """Return sizes of microbatches, and of the parts into which stages may split them."""
        return frozenset(size // parts for size in microbatches for parts in self.splits if size % parts == 0)

    @property
    def alike(self) -> Choices:
        """The same choices for plans all of whose stages are alike."""
        return replace(self, stage_tensor=None, shard_inside=None, splits_batch=False)

    def admits_uneven(self, variant: Variant) -> bool:
        """Whether plans of a variant, that of their stages with the most tensor ranks, may give each its own form."""
        tensor = self.tensor if self.stage_tensor is None else self.stage_tensor
        return bool(self.uneven) and (tensor is None or variant.tensor in tensor) and self._admits_rest(variant)

    def admits_recomputed(self, count: int, able: int) -> bool:
        """Whether so many layers of a stage may recompute, of those that can."""
        return self.recomputed is None or count in self.recomputed or count == able < max(self.recomputed)


COUNTED = (
    "tensor",
    "expert",
    "context",
    "microbatch",
    "replicas",
    "stages",
    "zero_degree",
    "recomputed",
    "chunks",
    "stage_tensor",
    "shard_inside",
)
"""Choices that are whole numbers from 1."""


@runtime_checkable
class SideConstraint(Protocol):
    """What a problem asks of its side constraints; `nest.constraints.Constraint` is what they are."""

    kind: ClassVar[str]

    @property
    def text(self) -> str:
        """What it asks for, in a few words."""

    @property
    def looks_at_layers(self) -> bool:
        """Whether it asks which layers a stage has, taking them for one row."""

    def check(self, problem: Problem) -> None:
        """Raise `InvalidProblem` where the constraint does not go with the problem."""


@dataclass(frozen=True)
class Problem:
    """Everything the optimizer needs to know.

    Parameters
    ----------
    name
        For people to read.
    graphs
        The model: one layer graph for each variant whose costs are known.
    cluster, training, choices, preset
        See there.
    time_unit_s
        Unit, in seconds, in which the input states its times and wants the objective back.
    source
        Where the figures come from.
    constraints
        What a plan has to keep beyond the space, of `nest.constraints`.

    Raises
    ------
    InvalidProblem
        If no variant is left, a graph branches and the preset prices chains only, or the preset does not know what is
        given.
    """

    name: str
    graphs: Mapping[Variant, LayerGraph]
    cluster: Cluster
    training: Training
    choices: Choices = field(default_factory=Choices)
    preset: Preset = PAPER
    time_unit_s: float = 1.0
    source: str = ""
    constraints: tuple[SideConstraint, ...] = ()

    def __post_init__(self) -> None:
        if not self.graphs:
            raise InvalidProblem("model", "no variant", "give the costs of the layers for at least one tensor width")
        self._check_preset()
        if not self.variants:
            raise self._without_variants()
        for graph in self.graphs.values():
            require_chain(graph, self.preset, "model.edges")
        self._check_classes()
        for constraint in self.constraints:
            if not isinstance(constraint, SideConstraint):
                raise InvalidProblem("constraints", f"{constraint!r} is none", "give objects of nest.constraints")
            if "interleaved" in self.choices.schedules and constraint.looks_at_layers:
                what = f"'interleaved' beside side constraint {constraint.kind!r}, which asks what one row of layers is"
                raise InvalidProblem("choices.schedules", what, "leave one of the two out")
            constraint.check(self)

    def _without_variants(self) -> InvalidProblem:
        """Return why no variant is left: choices allow none, or want computed again what those they allow cannot."""
        if not any(map(self.choices.admits, self.graphs)):
            return InvalidProblem(
                "choices", "no variant of the model is allowed", f"the model has {_known(self.graphs)}"
            )
        what = f"{' or '.join(sorted(self.choices.stage_recompute or ()))} alone, and no layer can compute that again"
        return InvalidProblem("choices.stage_recompute", what, "leave it out (--recompute), or allow none, too")

    def _check_preset(self) -> None:
        """Refuse what the preset would pass over although it decides which plans there are."""
        name, by_stage = self.preset.name, self.preset.recompute == "stage"
        if by_stage and self.choices.recompute != "none":
            remedy = f'each stage chooses for itself: give stage_recompute = "{self.choices.recompute}"'
            raise InvalidProblem("choices.recompute", f"{self.choices.recompute!r} under preset {name!r}", remedy)
        if strange := sorted(self.choices.schedules - set(self.preset.schedules)):
            remedy = f"this preset prices {', '.join(self.preset.schedules)}"
            raise InvalidProblem("choices.schedules", f"{strange[0]!r} under preset {name!r}", remedy)
        if self.choices.chunks is not None and max(self.choices.chunks) < 2:
            raise InvalidProblem("choices.chunks", "1 alone", "give numbers from 2, or leave it out")
        if self.choices.chunks is not None and "interleaved" not in self.choices.schedules:
            what = "interleaved is not among choices.schedules"
            raise InvalidProblem("choices.chunks", what, "allow it, or leave chunks out")
        if "interleaved" in self.choices.schedules:
            self._check_interleaved()
        if self.training.buffers_boundaries and (strange := sorted(self.choices.schedules - BUFFERED)):
            what = f"with schedule {strange[0]!r}"
            raise InvalidProblem("training.buffers_boundaries", what, f"allow {' and '.join(sorted(BUFFERED))} alone")
        if self.training.global_batch and self.preset.objective == "bottleneck":
            what = f"{self.training.global_batch} under preset {name!r}"
            raise InvalidProblem("training.global_batch", what, "this preset counts training.microbatches")
        if self.choices.splits_batch is not False and self.choices.shard_inside is None:
            remedy = "say by how much stages may be sharded inside (shard_inside), or leave it out"
            raise InvalidProblem("choices.splits_batch", "given without shard_inside", remedy)
        for choice, values in self.choices.uneven.items():
            self._check_uneven(f"choices.{choice}", f"{sorted(values or ())}")

    def _check_uneven(self, where: str, what: str) -> None:
        """Refuse what single stages may have of their own where nobody prices it."""
        if not self.preset.nesting or self.preset.objective != "sum":
            raise InvalidProblem(where, f"{what} under preset {self.preset.name!r}", "take preset 'default'")
        if "1f1b" not in self.choices.schedules:
            raise InvalidProblem(where, f"{what} without schedule 1f1b", "allow it: no other takes less time or memory")
        if self.cluster.classes:
            raise InvalidProblem(where, f"{what} on devices of several classes", "leave it out, or give one class")
        if any(graph.unordered_pair is not None for graph in self.graphs.values()):
            remedy = "stages have widths of their own in chains only"
            raise InvalidProblem(where, f"{what} for a model that branches", remedy)
        shapes = [(graph.index, graph.places, graph.table_place) for graph in self.graphs.values()]
        if any(shape != shapes[0] for shape in shapes):
            raise InvalidProblem(where, f"{what}, but variants have different layers", "give all the same layers")

    def _check_interleaved(self) -> None:
        """Refuse what is not said of plans whose stages are several rows of layers."""
        if any(graph.unordered_pair is not None for graph in self.graphs.values()):
            raise InvalidProblem("choices.schedules", "'interleaved' of a model that branches", "leave it out")
        for name in self.choices.uneven:
            what = f"'interleaved' beside stages with widths of their own ({name})"
            raise InvalidProblem("choices.schedules", what, "leave one of the two out")
        if self.cluster.classes:
            what = "'interleaved' on devices of several classes"
            raise InvalidProblem("choices.schedules", what, "leave it out: it is priced for devices of one class")

    def _check_classes(self) -> None:
        """Refuse classes of devices that the preset would pass over, or for which the model has no times."""
        wanted = {each.name for each in self.cluster.classes}
        if wanted and self.preset.objective != "sum":
            what = f"devices of {len(wanted) + 1} classes under preset {self.preset.name!r}"
            raise InvalidProblem("cluster.classes", what, "this preset takes devices of one class; give 'default'")
        for name in self.choices.uneven if wanted else ():
            what = "given for a cluster with devices of several classes"
            raise InvalidProblem(f"choices.{name}", what, "leave it out: there all stages have one width")
        for variant, graph in self.graphs.items():
            given = {name for name, _ in graph.others}
            if missing := sorted(wanted - given):
                what = f"no times of the layers on class {missing[0]!r} with {variant}"
                raise InvalidProblem("model.costs", what, f"add rows with class = {missing[0]!r}")
            if unknown := sorted(given - wanted):
                known = ", ".join(map(repr, self.cluster.class_names)) or "none"
                what = f"times on class {unknown[0]!r}, which the cluster does not have"
                raise InvalidProblem("model.costs", what, f"its classes are: {known}")

    def with_memory_of(self, classes: Collection[str]) -> Problem:
        """Return the problem as if each device had the least memory of some classes; none stands for no change."""
        if not classes:
            return self
        return replace(self, cluster=self.cluster.with_memory(self.cluster.hbm_bytes_of(classes)))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that preset and choices allow, in ascending order."""
        return tuple(sorted(variant for variant in self.graphs if self.admits(variant)))

    def admits(self, variant: Variant) -> bool:
        """Whether choices allow a variant, and leave its stages a kind of recomputation where those choose one."""
        return self.choices.admits(variant) and bool(self.recomputes(variant))

    def stage_forms(self, variant: Variant) -> tuple[Form, ...]:
        """Return of which forms each stage may be of a plan of this variant whose stages choose for themselves."""
        if not self.choices.admits_uneven(variant):
            return ()
        tensors = self.choices.stage_tensor
        wanted = [variant] if tensors is None else map(variant.with_tensor, sorted(tensors))
        whole = [each for each in wanted if each in self.graphs]
        forms = (form for each in whole for form in self._forms(each))
        return tuple(form for form in forms if form.variant in self.graphs and self.recomputes(form.variant))

    def _forms(self, variant: Variant) -> Iterator[Form]:
        """Yield in which ways stages of a variant may be sharded inside, and not sharded inside."""
        choices = self.choices
        for degree in sorted(choices.shard_inside or {1}):
            if degree == 1:
                yield Form(variant)
            elif choices.zero != {0}:
                if not choices.splits_batch:
                    yield Form(variant, degree)
                if choices.splits_batch is not False and variant.microbatch % degree == 0:
                    yield Form(replace(variant, microbatch=variant.microbatch // degree), degree, splits=True)

    @cached_property
    def families(self) -> tuple[tuple[Form, ...], ...]:
        """Sets of forms out of which a plan may give each stage its own; none where all stages are alike."""
        found = dict.fromkeys(self.stage_forms(variant) for variant in sorted(self.graphs))
        return tuple(family for family in found if family)

    def recomputes(self, variant: Variant) -> tuple[Recompute, ...]:
        """Return what a stage may recompute where each chooses for itself: what is allowed and has figures."""
        allowed = self.choices.stage_recompute
        if self.preset.recompute == "choices" or allowed == frozenset({"none"}):
            return ("none",)
        known = self.graphs[variant].recomputes
        kinds = (kind for kind in RECOMPUTE if kind == "none" or kind in known)
        return tuple(kind for kind in kinds if allowed is None or kind in allowed)

    def microbatches(self, variant: Variant) -> int:
        """Return the microbatches of an iteration: each slot of the pipeline holds one on every expert rank."""
        batch = self.training.global_batch
        return -(-batch // (variant.expert * variant.microbatch)) if batch else self.training.microbatches

    def unnested(self, form: Variant | Form) -> tuple[int, int] | None:
        """Return a unit of a stage and the group of the network that it does not nest with; None where all nest.

        Units that nest have groups of the same composition wherever a block of the stage stands.
        """
        if not self.preset.nesting:
            return None
        groups = [size for size in self.cluster.group_sizes if size < self.cluster.devices]
        return next(((unit, size) for unit in form.units for size in groups if unit % size and size % unit), None)

    def copies(self, variant: Variant, *, expert: bool) -> tuple[int, int]:
        """Return how many ranks of a block hold a copy of a weight, and how far each is from the next (D12)."""
        if not expert:
            return variant.context * variant.expert, variant.tensor
        if self.training.whole_experts and variant.sequence:
            return variant.tensor * variant.context, 1
        return variant.context, variant.tensor

    def copy_ranks(self, variant: Variant, replicas: int) -> tuple[int, int]:
        """Return how many ranks hold a copy of each dense weight, and of each expert's."""
        dense, expert = (self.copies(variant, expert=each)[0] for each in (False, True))
        return replicas * dense, replicas * expert

    def shard_groups(self, variant: Variant, replicas: int) -> tuple[int, ...]:
        """Return over how many neighbouring replicas a stage may shard, descending: numbers that divide all of them."""
        allowed, each = self.choices.zero_degree, self.copy_ranks(variant, 1)[0]
        if self.choices.zero == {0}:
            return ()
        low = [size for size in range(1, isqrt(replicas) + 1) if replicas % size == 0]
        sizes = {*low, *(replicas // size for size in low)} if self.choices.hybrid else {replicas}
        may = (size for size in sizes if size * each > 1 and (allowed is None or size * each in allowed))
        return tuple(sorted(may, reverse=True))

    @property
    def levels(self) -> int:
        """Number of network levels."""
        return len(self.cluster.levels)

    def zero_degrees(self, width: int) -> tuple[int, ...]:
        """Sharding degrees beyond 1 that a stage of ``width`` devices may take, ascending."""
        if not self.choices.zero - {0}:
            return ()
        most = self.cluster.devices // width
        allowed = self.choices.zero_degree
        if allowed is not None:
            return tuple(sorted(degree for degree in allowed if 1 < degree <= most))
        return tuple(2**power for power in range(1, most.bit_length()))

    @property
    def branches(self) -> bool:
        """Whether some layers of a variant that is allowed are ordered by nothing."""
        return any(self.graphs[variant].unordered_pair is not None for variant in self.variants)

    def in_one_order(self) -> Problem:
        """Return the same problem with stages that follow one order of the layers, at the same prices."""
        return replace(self, graphs={variant: graph.in_one_order() for variant, graph in self.graphs.items()})

    def with_choices(self, **changes: object) -> Problem:
        """Return the same problem with other choices, as in ``with_choices(zero=frozenset({0}))``."""
        return replace(self, choices=replace(self.choices, **changes))  # type: ignore[arg-type]

    def built(self, technologies: Sequence[Technology]) -> Problem:
        """Return the same problem with a choice of what the links are made; its tick is the same, too."""
        return replace(self, cluster=self.cluster.built(technologies)) if technologies else self

    def affords(self, technologies: Sequence[Technology]) -> bool:
        """Whether a choice of what the links are is within the budget."""
        most = self.choices.price_at_most
        return most is None or self.cluster.price(technologies) <= Fraction(repr(most))

    def with_constraints(self, *constraints: SideConstraint) -> Problem:
        """Return the same problem with these side constraints and no others."""
        return replace(self, constraints=constraints)

    def with_preset(self, preset: Preset) -> Problem:
        """Return the same problem under another preset."""
        return replace(self, preset=preset)


def _known(graphs: Mapping[Variant, LayerGraph]) -> str:
    """Return the variants of a model, or, where they are many, the values that occur."""
    if len(graphs) <= MOST_NAMED:
        return ", ".join(str(variant) for variant in sorted(graphs))
    names = [spec.name for spec in fields(Variant)]
    values = {name: sorted({getattr(variant, name) for variant in graphs}) for name in names}
    return "; ".join(f"{name} {', '.join(str(each).lower() for each in values[name])}" for name in names)


MOST_NAMED = 8
"""Variants that a message names one by one."""


def require_chain(graph: LayerGraph, preset: Preset, where: str) -> None:
    """Raise `InvalidProblem`, naming the key ``where``, if the graph branches and the preset prices chains only."""
    if not preset.branches and (pair := graph.unordered_pair):
        raise InvalidProblem(
            where,
            f"the model branches: nothing orders layers {pair[0]!r} and {pair[1]!r}",
            f"preset {preset.name!r} takes chains, with or without skip edges",
        )
