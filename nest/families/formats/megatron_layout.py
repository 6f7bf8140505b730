"""Which layers each stage of Megatron-LM has: layouts as it writes them, and its other ways to say so."""

from __future__ import annotations

import re

from nest.errors import InvalidProblem
from nest.families.formats.megatron_flags import is_given
from nest.families.keys import MOST_LAYERS, Keys

LAYOUT = "--pipeline-model-parallel-layout"
IN_TURN = "--microbatch-group-size-per-virtual-pipeline-stage"

_PIECE = re.compile(r"\((?P<group>[^()]*)\)(?:\*(?P<times>\d{1,6}))?|(?P<one>[EtmL|])(?:\*(?P<many>\d{1,6}))?")


def parts_of_layout(text: str) -> tuple[str, ...]:
    """Return the parts of a layout: ``E`` embedding, ``t`` layer, ``m`` prediction module, ``L`` loss.

    ``Et*3|(tt|)*2L`` has the parts ``Ettt``, ``tt``, ``tt`` and ``L``; commas mean nothing.

    Raises
    ------
    InvalidProblem
        If it is none.
    """
    parts = tuple(_unrolled(text.replace(",", "").replace(" ", ""), text).split("|"))
    inside = "".join(parts)
    if not inside.startswith("E") or not inside.endswith("L") or inside.count("E") != 1 or inside.count("L") != 1:
        raise InvalidProblem(LAYOUT, f"{text!r}", "give one E first and one L last")
    return parts


def _unrolled(piece: str, text: str) -> str:
    """Return a piece of a layout with its repetitions written out."""
    found, at = [], 0
    for match in _PIECE.finditer(piece):
        if match.start() != at:
            break
        at = match.end()
        inside = match["one"] or _unrolled(match["group"], text)
        found.append(inside * int(match["many"] or match["times"] or 1))
    unrolled = "".join(found)
    if at != len(piece) or len(unrolled) > 4 * MOST_LAYERS:
        raise InvalidProblem(LAYOUT, f"{text!r} is no layout", 'give one as in "Et*3|(tt|)*29,m|L"')
    return unrolled


def division_of(keys: Keys, stages: int) -> tuple[tuple[int, ...], int]:
    """Return the layers of each stage, and the chunks of each; of a layout with chunks the layers of each part.

    Empty and 1 where nothing says otherwise. What does not come out even is noted and left out, as Megatron-LM would
    not start.

    Raises
    ------
    InvalidProblem
        If a layout is wrong, or does not hold the layers of the model.
    """
    layers = keys.size("--num-layers", most=MOST_LAYERS)
    layout = keys.text(LAYOUT)
    if layout:
        counts, chunks = _of_layout(parts_of_layout(layout), stages, layers)
    else:
        counts, chunks = _counts(keys, stages, layers), _chunks(keys, stages, layers)
    if chunks > 1 and (keys.whole(IN_TURN) or stages) > stages:
        keys.note(f"{IN_TURN}: the least size is taken that leaves none, or as many as stages, for the last group")
    return counts, chunks


def _of_layout(parts: tuple[str, ...], stages: int, layers: int) -> tuple[tuple[int, ...], int]:
    if len(parts) % stages:
        raise InvalidProblem(LAYOUT, f"{len(parts)} parts for {stages} stages", "give a multiple of the stages")
    held = [part.count("t") for part in parts]
    if sum(held) != layers:
        raise InvalidProblem(LAYOUT, f"{sum(held)} layers", f"the model has {layers}")
    return tuple(held), len(parts) // stages


def _counts(keys: Keys, stages: int, layers: int) -> tuple[int, ...]:
    """Return the layers of each stage where first and last have their own numbers, or count what stands beside them."""
    first, last = (keys.whole(f"--decoder-{end}-pipeline-num-layers", least=0) for end in ("first", "last"))
    beside = [int(is_given(keys, f"--account-for-{each}-in-pipeline-split")) for each in ("embedding", "loss")]
    if "embedding" in keys.text("--pp-partition-method"):
        beside = [1, 1]  # DeepSpeed counts layers of the classes that it is told
    if first is None and last is None:
        if not any(beside) or stages == 1:
            return ()
        each, rest = divmod(layers + sum(beside), stages)
        return _noted(keys, stages, layers) if rest else (each - beside[0], *(each,) * (stages - 2), each - beside[1])
    ends = [count for count in (first, last) if count is not None]
    between = stages - len(ends)
    each, rest = divmod(layers - sum(ends), between) if between else (0, layers - sum(ends))
    if rest or each < 0:
        return _noted(keys, stages, layers)
    return (*([] if first is None else [first]), *(each,) * between, *([] if last is None else [last]))


def _noted(keys: Keys, stages: int, layers: int) -> tuple[int, ...]:
    keys.note(f"{layers} layers cannot be divided over {stages} stages as the arguments say; left out")
    return ()


def _chunks(keys: Keys, stages: int, layers: int) -> int:
    """Return the chunks of each stage, given as their number or by the layers of each."""
    if stages == 1:
        return 1
    chunks = keys.whole("--num-virtual-stages-per-pipeline-rank")
    if chunks is not None:
        return chunks
    each = keys.whole("--num-layers-per-virtual-pipeline-stage")
    if each is None:
        return 1
    beside = sum(is_given(keys, f"--account-for-{end}-in-pipeline-split") for end in ("embedding", "loss"))
    if (layers + beside) % (stages * each):
        keys.note(f"chunks of {each} layers do not make up {layers} layers over {stages} stages; left out")
        return 1
    return (layers + beside) // (stages * each)
