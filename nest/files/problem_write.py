"""`nest.problem.Problem` -> our problem format, as TOML that people like to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nest.cluster import PLAIN_LIBRARY, PLAIN_LINK, Cluster, DeviceClass, Level, Technology
from nest.errors import InvalidProblem
from nest.files.allowed import EVERY_ZERO, spell_allowed
from nest.files.constraint_rows import constraint_values
from nest.files.disk import write_text
from nest.files.left_out import LeftOut, left_out_values
from nest.files.model_write import model_lines
from nest.files.schema import SCHEMA
from nest.files.toml import Values, assignments, block, listing, size
from nest.presets import PRESETS
from nest.problem import COUNTED, RECOMPUTE, Choices, Problem, Training
from nest.training import SWITCHES


def write_problem(problem: Problem, path: str | Path, left_out: Sequence[LeftOut] | None = None) -> None:
    """Write a problem in our format, whole or not at all.

    Parameters
    ----------
    left_out
        What it lacks of the run that it was posed from; None where it is of none.

    Raises
    ------
    InvalidProblem
        If the format cannot express it: a preset of one's own, a side constraint of one's own, or variants that differ
        in layers or edges.
    OSError
        If the file cannot be written.
    """
    write_text(path, problem_text(problem, left_out))


def problem_text(problem: Problem, left_out: Sequence[LeftOut] | None = None) -> str:
    """Return a problem in our format; raises `InvalidProblem` as `write_problem` does."""
    return "\n".join([*_lines(problem, left_out), ""])


def _lines(problem: Problem, left_out: Sequence[LeftOut] | None) -> Iterator[str]:
    if PRESETS.get(problem.preset.name) != problem.preset:
        raise InvalidProblem("preset", f"{problem.preset.name!r} is no preset known by name", "use a named preset")
    head: Values = {"schema": SCHEMA, "name": problem.name, "source": problem.source, "preset": problem.preset.name}
    yield from assignments({name: value for name, value in head.items() if name != "source" or value})
    if problem.time_unit_s != 1.0:
        yield f"time_unit_s = {problem.time_unit_s!r}  # unit of the objective; times in this file are seconds"
    if left_out is not None:
        yield from listing("left_out", left_out_values(left_out))
    yield from block("[cluster]", _cluster(problem.cluster))
    yield from listing("levels", [_level(problem.cluster, at) for at in range(len(problem.cluster.levels))])
    if problem.cluster.classes:
        yield from listing("classes", [_class(each) for each in problem.cluster.classes])
    yield from block("[training]", _training(problem.training))
    yield from block("[choices]", choice_values(problem.choices))
    for constraint in problem.constraints:
        yield from block("[[constraints]]", constraint_values(constraint))
    yield from model_lines(problem.graphs)


def _training(training: Training) -> Values:
    """Return the figures that differ from their defaults, and always the optimizer."""
    values: Values = {"microbatches": training.microbatches} if training.microbatches else {}
    if training.global_batch:
        values["global_batch"] = training.global_batch
    values["optimizer"] = training.optimizer
    if training.copies is not None:
        values["copies"] = dict(training.copies.figures)
    values |= {name: True for name in SWITCHES if getattr(training, name)}
    for name in ("overlap_tax", "step_s_per_byte"):
        if getattr(training, name):
            values[name] = float(getattr(training, name))
    return values | ({"overhead_bytes": size(training.overhead_bytes)} if training.overhead_bytes else {})


def _cluster(cluster: Cluster) -> Values:
    name: Values = {"name": cluster.name} if cluster.name else {}
    partial: Values = {"partial": True} if cluster.partial else {}
    library: Values = {} if cluster.library == PLAIN_LIBRARY else {"library": cluster.library}
    built: Values = {"technologies": list(cluster.technologies)} if cluster.technologies else {}
    own: Values = {"class": cluster.own_class} if cluster.own_class else {}
    return (
        name | {"devices": cluster.devices} | partial | {"hbm_bytes": size(cluster.hbm_bytes)} | own | library | built
    )


def _class(each: DeviceClass) -> Values:
    ranges: Values = {"devices": [[first, end - 1] for first, end in each.ranges]}
    step: Values = {} if each.step_s_per_byte is None else {"step_s_per_byte": float(each.step_s_per_byte)}
    return {"name": each.name} | ranges | {"hbm_bytes": size(each.hbm_bytes)} | step


def _level(cluster: Cluster, at: int) -> Values:
    level = cluster.levels[at]
    head: Values = {"name": level.name} if level.name else {}
    head["fanout"] = level.fanout
    if level.alternatives:
        return head | {"alternatives": [_technology(each) for each in level.alternatives]}
    return head | _figures(level)


def _technology(technology: Technology) -> Values:
    price: Values = {"price_per_device": technology.price_per_device} if technology.price_per_device else {}
    return {"name": technology.name} | _figures(technology) | price


def _figures(level: Level | Technology) -> Values:
    figures: Values = {
        "bandwidth_bytes_per_s": size(level.bandwidth_bytes_per_s),
        "latency_s": float(level.latency_s),
    }
    return figures | _links(level)


def _links(level: Level | Technology) -> Values:
    """Return what is not plain about the links of a level."""
    values: Values = {} if level.link == PLAIN_LINK else {"link": level.link}
    if level.pair_bytes_per_s is not None:
        values["pair_bytes_per_s"] = size(level.pair_bytes_per_s)
    return values | ({"in_network_reduction": True} if level.in_network_reduction else {})


def choice_values(choices: Choices) -> Values:
    """Return what restricts the solver, and always sharding and recomputation, which decide what fits."""
    values: Values = {}
    for name in COUNTED:
        allowed = getattr(choices, name)
        if allowed is not None:
            values[name] = spell_allowed(allowed)
    if choices.sequence is not None:
        values["sequence"] = choices.sequence
    if choices.splits_batch is not False:
        values["splits_batch"] = "any" if choices.splits_batch is None else choices.splits_batch
    if choices.price_at_most is not None:
        values["price_at_most"] = choices.price_at_most
    if choices.stage_recompute is not None:
        values["stage_recompute"] = [each for each in RECOMPUTE if each in choices.stage_recompute]
    if not choices.hybrid:
        values["hybrid"] = False
    if choices.schedules != {"1f1b"}:
        values["schedules"] = sorted(choices.schedules)
    return values | {"zero": _zero(choices.zero), "recompute": choices.recompute}


def _zero(zero: frozenset[int]) -> int | list[int] | str:
    if zero == EVERY_ZERO:
        return "any"
    if zero == {0}:
        return "none"
    return sorted(zero) if len(zero) > 1 else min(zero)
