"""A model as `nest show` prints it: text for a terminal, and JSON of the schema ``nest.model/1``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nest.families import Architecture, Block, Description, Stack
from nest.families.description import spelt
from nest.families.oddities import oddities
from nest.report.format import counted
from nest.report.layout import Column, Screen, Summary, render, ruled_table

SCHEMA = "nest.model/1"


def model_facts(description: Description) -> dict[str, object]:
    """Return everything `nest show` says of a model, ready for JSON.

    ``parameters`` is the published model, ``total`` and by component, tied weights counted once; ``active_parameters``
    what one token of text passes. ``outside`` lists stacks that neither counts.
    """
    model = description.model
    return {
        "schema": SCHEMA,
        "name": model.name,
        "kind": description.kind,
        "family": model.family,
        "layers": model.layers,
        "sequence": model.sequence or None,
        "parameters": parameter_facts(model),
        "active_parameters": model.active_parameters,
        "stacks": [_stack_facts(model, stack) for stack in model.stacks],
        "outside": [
            {**_stack_facts(model, extra.stack), "why": extra.why, "trained": extra.trained} for extra in model.extras
        ],
        "links": [
            {"source": list(link.source), "target": list(link.target), "width": link.width} for link in model.links
        ],
        "settings": dict(description.settings),
        "notes": list(model.notes),
        "oddities": list(oddities(model)),
    }


def parameter_facts(model: Architecture) -> dict[str, object]:
    """Return the parameters of the published model, in all and by kind of component."""
    blocks = (block for stack in model.stacks for block in stack.blocks)
    return {"total": model.parameters, "per_component": component_parameters(blocks)}


def model_text(description: Description, screen: Screen) -> str:
    """Return what was read of a model: parameters by component, layers by kind, and what was assumed."""
    model = description.model
    summary = Summary()
    summary.add("Model", ", ".join(part for part in (model.name, model.family, description.kind) if part))
    summary.add("Parameters", _amount(model.parameters))
    if model.routed:
        summary.add("Active", f"{_amount(model.active_parameters)}, those that one token passes")
    for stack in model.stacks:
        summary.add("Layers", f"{stack.name}: {_kinds(stack)}")
    for extra in model.extras:
        summary.add("Outside", f"{extra.stack.name}: {_amount(extra.stack.parameters)}; {extra.why}")
    summary.add("Settings", spelt(description.settings))
    summary.extend("Noted", model.notes)
    summary.extend("Odd", oddities(model))
    return render(screen, ruled_table(_COLUMNS, _rows(model)), summary.table)


def component_parameters(blocks: Iterable[Block]) -> dict[str, int]:
    """Return the parameters of some blocks by kind of component, in the order in which they come."""
    sums: Counter[str] = Counter()
    for block in blocks:
        for component in block.components:
            if component.parameters:
                sums[component.kind] += component.parameters
    return dict(sums)


_COLUMNS = (
    Column("Stack"),
    Column("Component"),
    Column("Parameters", number=True),
    Column("Share", number=True),
)


def _rows(model: Architecture) -> Sequence[Sequence[str]]:
    return [
        (stack.name, kind, f"{parameters:,}", f"{100 * parameters / max(model.parameters, 1):.1f} %")
        for stack in model.stacks
        for kind, parameters in component_parameters(stack.blocks).items()
    ]


def _stack_facts(model: Architecture, stack: Stack) -> dict[str, object]:
    tokens = {stream.name: stream.tokens for stream in model.streams}
    return {
        "name": stack.name,
        "stream": stack.stream,
        "tokens": tokens[stack.stream],
        "layers": stack.layers,
        "kinds": stack.kinds,
        "blocks": [block.kind for block in stack.blocks],
        "parameters": stack.parameters,
        "active_parameters": stack.active_parameters,
        "components": component_parameters(stack.blocks),
        "matmul_flops_per_token": float(sum(block.matmul_flops for block in stack.blocks)),
    }


def _kinds(stack: Stack) -> str:
    return " + ".join(f"{number} {kind}" for kind, number in stack.kinds.items()) or "none"


def _amount(parameters: int) -> str:
    """Return a number of parameters, exact and rounded."""
    for factor, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if parameters >= factor:
            return f"{parameters:,} ({parameters / factor:.2f} {unit})"
    return counted(parameters, "parameter")
