"""Numbers and names as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import ceil, floor

from nest.cluster import Cluster
from nest.graph import LayerId
from nest.plan import Plan
from nest.problem import Variant
from nest.units import Number

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_RATES = ((1e15, "PB/s"), (1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)")
_SHORT_LIST = 24


def duration(seconds: float, *, aligned: bool = False) -> str:
    """Return a time with four significant digits, as in ``43.52 ms``; ``aligned`` keeps trailing zeros."""
    return _scaled(seconds, _TIMES, 4, aligned)


def size(count: Number, *, aligned: bool = False) -> str:
    """Return bytes in binary multiples with three significant digits, as memory is sold: ``64 GiB``."""
    return _scaled(float(count), _SIZES, 3, aligned)


def bandwidth(bytes_per_s: float) -> str:
    """Return bytes per second in decimal multiples with three significant digits, as networks are sold."""
    return _scaled(bytes_per_s, _RATES, 3, aligned=False)


def percent(part: Number, whole: Number) -> str:
    """Return a share in whole percent; 100 % means exactly full, and any excess reads as more."""
    share = 100 * part / whole
    return f"{ceil(share) if part > whole else floor(share)} %"


def share(part: Number, whole: Number) -> str:
    """Return a share with one decimal, or that it is less: ``12.3 %``, ``< 0.1 %``."""
    if not part:
        return "0 %"
    value = 100 * part / whole
    return "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def bar(part: Number, whole: Number, width: int) -> str:
    """Return a bar of so many characters, filled as far as the share is; an excess ends in ``!``."""
    if part > whole:
        return "━" * (width - 1) + "!"
    filled = min(width, max(int(part > 0), round(width * part / whole)))
    return "━" * filled + "─" * (width - filled)


def count(number: int) -> str:
    """Return a whole number: exact with separators below a million million, else as a power of ten."""
    if number < 10**12:
        return f"{number:,}"
    leading, exponent = f"{Decimal(number):.2e}".split("e+")
    return f"{leading} x 10^{exponent}"


def layer_range(ids: Sequence[LayerId]) -> str:
    """Return layer ids with neighbours joined, as in ``-1, 0-3``; of a long list, its ends."""
    parts = [_joined(run) for run in _runs(ids)]
    text = ", ".join(parts)
    return text if len(text) <= _SHORT_LIST or len(parts) < 3 else f"{parts[0]} … {parts[-1]}"


def number_range(first: int, last: int) -> str:
    """Return a range of whole numbers, as in ``0-3``."""
    return str(first) if first == last else f"{first}-{last}"


def number_ranges(numbers: Iterable[int]) -> str:
    """Return ascending whole numbers by ranges, as in ``0-3, 7``."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        first = runs.pop()[0] if runs and runs[-1][1] + 1 == number else number
        runs.append((first, number))
    return ", ".join(number_range(*run) for run in runs)


def counted(number: int, noun: str) -> str:
    """Return a number of things, as in ``1 stage``, ``2 stages`` and ``2 microbatches``."""
    plural = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count(number)} {noun}{plural}"


def widths(variant: Variant) -> str:
    """Return the widths of a variant, as in ``tensor 4 x expert 1 x context 1``."""
    return f"tensor {variant.tensor} x expert {variant.expert} x context {variant.context}{_modes(variant)}"


def plan_widths(plan: Plan) -> str:
    """Return the widths of a plan, with all tensor widths where those of its stages differ."""
    tensors = sorted({variant.tensor for variant in plan.stage_variants})
    return widths(plan.variant).replace(f"tensor {plan.variant.tensor}", f"tensor {_listed(tensors)}", 1)


def _listed(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def short_widths(variant: Variant) -> str:
    """Return the widths of a variant without their names, as in ``4 x 1 x 1``."""
    return f"{variant.tensor} x {variant.expert} x {variant.context}{_modes(variant)}"


def technologies_text(cluster: Cluster, plan: Plan) -> str:
    """Return what a plan chose for the levels with a menu, and what that costs; nothing where there is no menu."""
    chosen = cluster.named(plan.technologies)
    if not chosen:
        return ""
    menus = [at for at, level in enumerate(cluster.levels) if level.alternatives]
    names = ", ".join(f"{level_name(cluster, at)} {each.name}" for at, each in zip(menus, chosen, strict=True))
    return f"{names}; price {float(cluster.price(chosen)):,.10g}"


def level_name(cluster: Cluster, level: int) -> str:
    """Return the name of a network level, or its number where it has none."""
    return cluster.levels[level].name or f"level {level}"


def _modes(variant: Variant) -> str:
    modes = ["sequence parallel"] if variant.sequence else []
    modes += [f"microbatch {variant.microbatch}"] if variant.microbatch != 1 else []
    return "".join(f", {mode}" for mode in modes)


def _scaled(value: float, scales: Sequence[tuple[float, str]], digits: int, aligned: bool) -> str:
    """Spell a value in the first unit in which, once rounded, it reads as 1 or more."""
    if not value:
        return f"0 {next(unit for factor, unit in scales if factor == 1)}"
    factor, unit = next((scale for scale in scales if _rounded(value / scale[0], digits) >= 1), scales[-1])
    whole_digits = len(str(int(_rounded(value / factor, digits))))
    text = f"{value / factor:.{max(0, digits - whole_digits)}f}"
    return f"{text if aligned else _stripped(text)} {unit}"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _stripped(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _runs(ids: Sequence[LayerId]) -> list[list[LayerId]]:
    runs: list[list[LayerId]] = []
    for name in ids:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return runs


def _follows(before: LayerId, after: LayerId) -> bool:
    """Whether two ids are neighbours: the same text, then a number and its successor."""
    if isinstance(before, str) != isinstance(after, str):
        return False
    first, second = _NUMBERED.fullmatch(str(before)), _NUMBERED.fullmatch(str(after))
    if first is None or second is None or first[1] != second[1] or first[1] == "-":
        return False
    return int(second[2]) == int(first[2]) + 1


def _joined(run: Sequence[LayerId]) -> str:
    if len(run) == 1:
        return str(run[0])
    tail = _NUMBERED.fullmatch(str(run[-1]))
    return f"{run[0]}-{tail[2] if tail else run[-1]}"
