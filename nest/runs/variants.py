"""Which variants a run has: widths that divide what they share, and sizes that are usual unless others are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod

from nest.costing import Setting
from nest.errors import InvalidProblem
from nest.families import Matmul, Operator, Scores, Split, Stack
from nest.files.left_out import LeftOut
from nest.problem import RECOMPUTE, Allowed, Recompute, Variant
from nest.runs.chain import check_own_weights, trained_stacks
from nest.runs.run import Run

LEAST_TOKENS = 1024
"""Tokens of a sequence that a device keeps under context parallel on many devices, unless fewer are asked for."""

FEW_DEVICES = 64
"""On as many devices all context widths are tried: the variants are few."""


@dataclass(frozen=True)
class Widths:
    """The widths and sizes of a run's variants, and what was left out of each.

    Parameters
    ----------
    run, stacks
        What is trained, and the stacks of its model.
    every
        Whether unusual context widths and microbatches are among them without being named.
    also
        A variant whose context width and microbatch are among them in any case; None for none.
    """

    run: Run
    stacks: tuple[Stack, ...]
    every: bool = False
    also: Variant | None = None

    @cached_property
    def tensor(self) -> tuple[list[int], list[LeftOut]]:
        """Tensor widths: all that divide what they cut."""
        devices = self.run.hardware.cluster.devices
        whole = gcd(*(length for _, length, parts in self._cut if not parts))
        fitting = [width for width in _divisors(whole, devices) if not self._uncut(width)]
        return self._chosen("tensor", _with_powers(fitting, min(devices, 2 * fitting[-1])), self._uncut)

    @cached_property
    def context(self) -> tuple[list[int], list[LeftOut]]:
        """Context widths: all that divide the tokens, but on many devices only those that leave each some tokens."""
        devices = self.run.hardware.cluster.devices
        every, most = self.every_context, max(1, self.run.sequence // LEAST_TOKENS)
        all_tried = self.every or devices <= FEW_DEVICES
        usual = every if all_tried else [width for width in every if width <= most]
        values = self._with("context", _with_powers(usual, usual[-1]))
        kept, left = self._chosen("context", values, self._unparted)
        if self.run.choices.context is None and len(usual) < len(every):
            why = f"a device would have fewer than {LEAST_TOKENS} tokens of a sequence; --set context=... tries them"
            left.append(LeftOut(f"context widths above {usual[-1]}", why, possible=True))
        return kept, left

    @cached_property
    def every_context(self) -> list[int]:
        """All context widths that the model and the devices allow."""
        widths = _divisors(gcd(*self._lengths), self.run.hardware.cluster.devices)
        return [width for width in widths if not self._unparted(width)]

    @cached_property
    def expert(self) -> tuple[list[int], list[LeftOut]]:
        """Expert widths."""
        count = self._experts
        return self._chosen("expert", (width for width in range(1, count + 1) if count % width == 0), self._unspread)

    @cached_property
    def microbatch(self) -> tuple[list[int], list[LeftOut]]:
        """Sequences of a microbatch."""
        batch = self.run.global_batch

        def undivided(size: int) -> str:
            """Return why a microbatch of so many sequences does not go, if so."""
            return f"it does not divide the batch of {batch}" if batch % size else ""

        usual = _divisors(batch, batch) if self.every else self._with("microbatch", _powers(batch))
        kept, left = self._chosen("microbatch", usual, undivided, ignored=True)
        if self.run.choices.microbatch is None and len(kept) < len(_divisors(batch, batch)):
            left.append(
                LeftOut("microbatches that are no powers of two", "--set microbatch=... tries them", possible=True)
            )
        return kept, left

    @cached_property
    def recompute(self) -> tuple[list[Recompute], list[LeftOut]]:
        """Kinds of recomputation, of which each stage takes one."""
        asked = self.run.choices.stage_recompute
        if asked is not None:
            return [kind for kind in RECOMPUTE if kind in asked], []
        if not self.run.fused:
            return list(RECOMPUTE), []
        why = "fused attention keeps no scores that could be computed again"
        return ["none", "full"], [LeftOut("recompute selective", why)]

    def shapes(self) -> Iterator[Variant]:
        """Yield the variants with the least microbatch."""
        asked, devices = self.run.choices.sequence, self.run.hardware.cluster.devices
        least = self.microbatch[0][0]
        for tensor, context, expert in product(self.tensor[0], self.context[0], self.expert[0]):
            if tensor * context * expert > devices:
                continue
            for sequence in (False, True):
                shared = sequence and (tensor == 1 or self._uneven(tensor * context))
                lone = tensor == 1 and 1 in (self.run.choices.stage_tensor or ())  # nothing to share, whatever is asked
                if not shared and (lone or asked in (None, sequence)):
                    yield Variant(tensor, expert, context, sequence, least)

    def none_left(self) -> InvalidProblem:
        """Return why there is no shape: all are too wide, or none shares the sequence as asked."""
        devices = self.run.hardware.cluster.devices
        names = ("tensor", "context", "expert")
        least = {name: getattr(self, name)[0][0] for name in names}
        if prod(least.values()) > devices:
            what = " x ".join(f"{name} {width}" for name, width in least.items())
            what = f"{what}, the narrowest, are {prod(least.values())} devices, and the cluster has {devices}"
            return InvalidProblem("choices", what, "give narrower ones, or more devices")
        what = "no tensor width above 1 that is left divides the tokens of each sequence"
        return InvalidProblem("sequence_parallel", what, "give another width or sequence, or leave it open")

    @property
    def left_out(self) -> list[LeftOut]:
        """What was left out of all of them."""
        found = (self.tensor, self.context, self.expert, self.microbatch, self.recompute)
        return [each for _, left in found for each in left]

    def check(self, setting: Setting) -> None:
        """Refuse what one setting shares unevenly, or says of experts that the model does not have.

        Raises
        ------
        InvalidProblem
            Naming the first width or number.
        """
        for name, why in (("tensor", self._uncut(setting.tensor)), ("expert", self._unspread(setting.expert))):
            if why:
                raise InvalidProblem(name, f"{getattr(setting, name)}: {why}", "choose another width")
        ranks = setting.tensor * setting.context
        if setting.sequence_parallel and setting.sequence % ranks:
            what = f"{setting.sequence} tokens, which tensor x context {ranks} do not divide"
            raise InvalidProblem("sequence", what, "choose another length, or leave sequence parallel out")
        self.check_routing(setting)

    def check_routing(self, said: Run | Setting) -> None:
        """Refuse numbers about routed experts where the model has none.

        Raises
        ------
        InvalidProblem
            Naming the first number.
        """
        for name, usual in (("imbalance", 1), ("capacity", 0)):
            if self._experts == 1 and getattr(said, name) != usual:
                what = f"{getattr(said, name):g}: the model has no routed experts"
                raise InvalidProblem(name, what, "leave it out")

    def _with(self, name: str, usual: list[int]) -> list[int]:
        """Return usual values and that of the variant which is tried in any case."""
        return usual if self.also is None else sorted({*usual, getattr(self.also, name)})

    def _chosen(
        self, name: str, usual: Iterable[int], why_not: Callable[[int], str], *, ignored: bool = False
    ) -> tuple[list[int], list[LeftOut]]:
        """Return the usual values, or those that are asked for, that nothing speaks against."""
        asked: Allowed = getattr(self.run.choices, name)
        if name == "tensor" and asked is not None:
            asked |= self.run.choices.stage_tensor or frozenset()
        if name == "microbatch" and asked is not None:
            asked = self.run.choices.with_parts(asked)
        values = sorted(usual if asked is None else asked)
        reasons = {value: why_not(value) for value in values}
        kept = [value for value in values if not reasons[value]]
        if not kept:
            raise InvalidProblem(name, f"{values[0]}: {reasons[values[0]]}", "choose another width, or leave it open")
        left: dict[str, list[int]] = {} if ignored else {reason: [] for reason in reasons.values() if reason}
        for value, reason in reasons.items():
            if reason in left:
                left[reason].append(value)
        return kept, [LeftOut(f"{name} {', '.join(map(str, each))}", reason) for reason, each in left.items()]

    def _uncut(self, width: int) -> str:
        """Return what a tensor width does not divide."""
        for what, length, parts in self._cut:
            if parts and parts % width and width % parts:
                return f"it does not divide the {parts} {what}"
            if not parts and length % width:
                return f"it does not divide the {length} {what}"
        return ""

    @cached_property
    def _cut(self) -> tuple[tuple[str, int, int], ...]:
        """What tensor parallel cuts: name, length, and the pieces that there are, or 0."""
        blocks = dict.fromkeys(block for stack in self.stacks for block in stack.blocks)
        operators = [operator for block in blocks for operator in block.operators]
        found: dict[tuple[str, int, int], None] = {}
        for operator in sorted(operators, key=lambda each: not isinstance(each, Scores)):  # heads say the most
            found.update(dict.fromkeys(self._cut_of(operator)))
        return tuple(found)

    def _cut_of(self, operator: Operator) -> Iterator[tuple[str, int, int]]:
        if isinstance(operator, Scores):
            yield "heads", operator.heads, 0
            yield "key-value heads", operator.kv_heads, operator.kv_heads
        if not isinstance(operator, Matmul) or (operator.groups > 1 and not self.run.cut_experts):
            return
        if operator.split is Split.COLUMN:
            yield f"columns of {operator.name}", operator.outputs, operator.parts
        elif operator.split is Split.ROW:
            yield f"rows of {operator.name}", operator.inputs, operator.parts
        elif operator.split is Split.VOCABULARY and not self.run.padding:
            yield "rows of the vocabulary", operator.outputs, 0

    @cached_property
    def _experts(self) -> int:
        """Greatest number that divides the experts of all layers; 1 without experts."""
        blocks = (block for stack in self.stacks for block in stack.blocks)
        weights = (weight for block in set(blocks) for part in block.components for weight in part.weights)
        return gcd(*(weight.experts for weight in weights if weight.experts)) or 1

    def _unspread(self, width: int) -> str:
        if self._experts == 1 and width > 1:
            return "the model has no routed experts"
        return f"it does not divide the {self._experts} experts" if self._experts % width else ""

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        """Tokens of a sequence in each stream."""
        given = dict(self.run.lengths)
        return tuple(given.get(each.name) or each.tokens or self.run.sequence for each in self.run.model.streams)

    def _unparted(self, width: int) -> str:
        """Return what a context width does not divide."""
        if self.run.context_kind == "exchange" and width > 1:
            heads = [length for what, length, _ in self._cut if what == "heads" and length % width]
            if heads:
                return f"it does not divide the {heads[0]} heads that are exchanged for tokens"
        rest = self._uneven(width)
        return f"it does not divide the {rest} tokens of a sequence" if rest else ""

    def _uneven(self, width: int) -> int:
        """Return the tokens of a stream that a width does not divide, 0 if it divides all."""
        return next((length for length in self._lengths if length % width), 0)


def check_widths(run: Run, setting: Setting) -> None:
    """Refuse a setting whose widths do not divide what they share, as `problem_of` leaves them out, and shared layers.

    Unlike a problem, an estimate takes models whose stacks do not follow each other.

    Raises
    ------
    InvalidProblem
        Naming the first width or number.
    """
    check_own_weights(run.model)
    Widths(run, trained_stacks(run.model)).check(setting)


def _powers(most: int) -> list[int]:
    """Return the powers of two up to a number."""
    return [2**power for power in range(most.bit_length())]


def _divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number up to another; all numbers divide 0."""
    return [width for width in range(1, (min(number, most) if number else most) + 1) if number % width == 0]


def _with_powers(widths: list[int], most: int) -> list[int]:
    """Return widths, and the powers of two up to a number, of which it is said why they are left out."""
    return sorted({*widths, *_powers(most)})
