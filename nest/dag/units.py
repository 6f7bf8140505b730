"""Layers that must share a stage, as one unit: colours, and cycles that colours close."""

from __future__ import annotations

from dataclasses import dataclass

from nest.dag.problem import DagProblem


@dataclass(frozen=True, slots=True)
class Unit:
    """Layers that share a stage.

    Parameters
    ----------
    layers
        Their places in the problem.
    before
        Units right before it, as bits.
    """

    layers: tuple[int, ...]
    before: int


def units_of(problem: DagProblem) -> tuple[Unit, ...]:
    """Return the units of a problem in topological order."""
    colours: dict[object, int] = {}
    colour = [colours.setdefault(problem.colour(at), len(colours)) for at in range(len(problem.layers))]
    after: list[list[int]] = [[] for _ in colours]
    for first, second in problem.arcs:
        after[colour[first]].append(colour[second])
    place = {one: at for at, component in enumerate(_components(after)) for one in component}
    layers: list[list[int]] = [[] for _ in set(place.values())]
    before = [0] * len(layers)
    for at, one in enumerate(colour):
        layers[place[one]].append(at)
    for first, second in problem.arcs:
        source, target = place[colour[first]], place[colour[second]]
        if source != target:
            before[target] |= 1 << source
    return tuple(Unit(tuple(held), needs) for held, needs in zip(layers, before, strict=True))


def _components(after: list[list[int]]) -> list[list[int]]:
    """Return the strongly connected components, in topological order (Tarjan's algorithm, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    held: set[int] = set()
    found: list[list[int]] = []
    for root in range(len(after)):
        walk = [] if root in number else [(root, iter(after[root]))]
        while walk:
            node, rest = walk[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                held.add(node)
            following = next(rest, None)
            if following is not None:
                if following not in number:
                    walk.append((following, iter(after[following])))
                elif following in held:
                    low[node] = min(low[node], number[following])
                continue
            walk.pop()
            if walk:
                low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
            if low[node] == number[node]:
                at = stack.index(node)
                found.append(stack[at:])
                held.difference_update(stack[at:])
                del stack[at:]
    return found[::-1]
