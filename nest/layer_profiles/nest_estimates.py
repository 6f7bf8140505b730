"""Estimates of operators that the solver of arXiv 2603.06798 reads: JSON of tables whose keys are numbers as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nest.errors import InvalidProblem
from nest.files.words import show
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import MS, number, table_at

UNITS = "not in the file: latencies taken as milliseconds"

_CORES = frozenset({"TC", "VC", "AR"})
_BATCH = re.compile(r"mbs_?(?P<number>\d+)", re.IGNORECASE)
_SEQ = re.compile(r"(?<![a-z])sl_?(?P<number>\d+)", re.IGNORECASE)

UNSTATED = "no unit is in the file: as milliseconds, products of an H100 take what its peak allows"
MODELLED = "latencies are a model's, of operators by number: nothing was measured, and no layers are named"


def is_nest_estimates(table: Mapping[str, object]) -> bool:
    """Whether JSON holds such estimates: by tensor width, then by core."""
    return bool(table) and all(
        key.isdecimal() and isinstance(value, dict) and bool(value) and set(value) <= _CORES
        for key, value in table.items()
    )


def read_nest_estimates(table: Mapping[str, object], file_name: str) -> tuple[LayerProfile, ...]:
    """Return a profile for each tensor width, operators in the order of their numbers."""
    batch, seq = (pattern.search(file_name) for pattern in (_BATCH, _SEQ))
    return tuple(
        LayerProfile(
            "operator estimates of arXiv 2603.06798",
            UNITS,
            tuple(layer for _, layer in sorted(_operators(table_at(table, width, ""), width), key=_number)),
            tensor=int(width),
            microbatch=int(batch["number"]) if batch else None,
            seq=int(seq["number"]) if seq else None,
            warnings=(UNSTATED, MODELLED),
        )
        for width in sorted(table, key=int)
    )


def _operators(cores: Mapping[str, object], width: str) -> Iterator[tuple[int, ProfiledLayer]]:
    for core in cores:
        for name, estimates in table_at(cores, core, f"{width}.").items():
            where = f"{width}.{core}.{name}"
            if not (name.isdecimal() and isinstance(estimates, list) and estimates and isinstance(estimates[0], dict)):
                raise InvalidProblem(where, show(estimates), "give a list of estimates under a number")
            times = [
                number(table_at(estimates[0], pass_, f"{where}[0].").get("latency"), f"{where}[0].{pass_}.latency")
                for pass_ in ("fwd", "bwd")
            ]
            yield int(name), ProfiledLayer(name, core, forward_s=MS * times[0], backward_s=MS * times[1])


def _number(numbered: tuple[int, ProfiledLayer]) -> int:
    return numbered[0]
