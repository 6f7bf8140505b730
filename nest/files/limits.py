"""Types of the values that files hold, with their limits; the description is what errors and schema say is right."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

MOST_BYTES = 2**53
MOST_COUNT = 2**31
MOST_LAYERS = 10_000
MOST_SECONDS = 1e9

Count: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_COUNT, description=f"a whole number from 1 to {MOST_COUNT}")]
Place: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_COUNT, description=f"a whole number from 0 to {MOST_COUNT}")]
Ends: TypeAlias = Annotated[list[Place], Meta(min_length=2, max_length=2, description="a first and a last device")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MOST_SECONDS, description="seconds, a number from 0 to 1e9")]
Bandwidth: TypeAlias = Annotated[
    float, Meta(ge=1e-3, le=1e18, description="bytes per second, a number above 0, from 1e-3 to 1e18")
]
Bytes: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=MOST_BYTES)] | Annotated[float, Meta(ge=0, le=MOST_BYTES)],
    Meta(description=f"bytes, a number from 0 to 2^53 = {MOST_BYTES}"),
]
Capacity: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=MOST_BYTES)] | Annotated[float, Meta(gt=0, le=MOST_BYTES)],
    Meta(description=f"bytes, a number above 0, up to 2^53 = {MOST_BYTES}"),
]
Price: TypeAlias = Annotated[float, Meta(ge=0, le=1e15, description="a price, a number from 0 to 1e15")]
WholeId: TypeAlias = Annotated[int, Meta(ge=-MOST_BYTES, le=MOST_BYTES, description="a whole number up to 2^53")]
LayerName: TypeAlias = Annotated[
    WholeId | Annotated[str, Meta(min_length=1, max_length=1000)],
    Meta(description="the id of a layer, a whole number or a string"),
]
LayerNames: TypeAlias = Annotated[list[LayerName], Meta(min_length=1, description="a list of layer ids")]
Text: TypeAlias = Annotated[str, Meta(max_length=10_000, description="a string")]
Switch: TypeAlias = Annotated[bool, Meta(description="true or false")]


class Table(Struct, forbid_unknown_fields=True):
    """A table of our formats: unknown keys are errors."""
