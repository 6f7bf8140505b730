"""Variants as the keys of a table: ``tensor``, and whatever differs from its default."""

from __future__ import annotations

from dataclasses import fields

from nest.files.schema import VariantKeys
from nest.files.words import show
from nest.problem import Variant

NAMES = tuple(field.name for field in fields(Variant))


def variant_of(table: VariantKeys) -> Variant:
    """Return the variant that a table names."""
    return Variant(table.tensor, table.expert, table.context, table.sequence, table.microbatch)


def variant_keys(variant: Variant) -> dict[str, int | bool | str]:
    """Return the keys by which a table names a variant, without those that have their default."""
    plain = {field.name: field.default for field in fields(Variant)}
    values = {name: getattr(variant, name) for name in NAMES}
    return {name: value for name, value in values.items() if name == "tensor" or value != plain[name]}


def spell_variant(variant: Variant) -> str:
    """Return a variant for people to read, as in ``tensor=1 expert=4``."""
    return " ".join(f"{name}={show(value)}" for name, value in variant_keys(variant).items())
