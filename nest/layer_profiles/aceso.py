"""Profiles of Aceso: CSV, a row for each operator; its name says microbatch and tensor width."""

from __future__ import annotations

import re

from nest.errors import InvalidProblem
from nest.files.columns import cells_in
from nest.layer_profiles.metis import number_in
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.values import MIB, US, number

UNITS = "microseconds of one microbatch; MiB"
HEAD = "op_name,forward-compute,backward-compute,"

_COLUMNS = ("forward-compute", "backward-compute", "output_size", "weights", "activations")
_TENSOR = re.compile(r"(?<![a-z])tp(?P<number>\d+)", re.IGNORECASE)
_BATCH = re.compile(r"(?<![a-z])mbs(?P<number>\d+)", re.IGNORECASE)

ONE_LAYER = "operators of ONE layer, beside embedding and head: how often the layer repeats is not in the file"


def is_aceso(text: str) -> bool:
    """Whether a text is a table of operators of Aceso, by its head."""
    return text.startswith(HEAD)


def read_aceso(text: str, file_name: str) -> LayerProfile:
    """Return the profile, operators as layers."""
    head, *rows = [row for row in cells_in(text.splitlines()) if row]
    for column in _COLUMNS:
        if column not in head:
            raise InvalidProblem("line 1", f"no column {column!r}", f"give op_name, {', '.join(_COLUMNS)}")
    tensor, batch = number_in(file_name, _TENSOR), number_in(file_name, _BATCH)
    lacking = [what for what, value in (("tp", tensor), ("mbs", batch)) if value is None]
    return LayerProfile(
        "Aceso CSV",
        UNITS,
        tuple(_operator(head, row, f"line {at}") for at, row in enumerate(rows, 2)),
        tensor=tensor,
        microbatch=batch,
        warnings=(ONE_LAYER, *(f"the file's name, which alone could say it, has no {what}" for what in lacking)),
    )


def _operator(head: list[str], row: list[str], where: str) -> ProfiledLayer:
    if len(row) != len(head):
        raise InvalidProblem(where, f"{len(row)} cells, the head has {len(head)}", "give one for each column")
    cells = dict(zip(head, row, strict=True))
    forward, backward, sent, weights, kept = (number(cells[column], f"{where}: {column}") for column in _COLUMNS)
    return ProfiledLayer(
        cells["op_name"],
        forward_s=US * forward,
        backward_s=US * backward,
        parameter_bytes=round(MIB * weights),
        activation_bytes=round(MIB * kept),
        output_bytes=round(MIB * sent),
    )
