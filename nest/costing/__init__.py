"""What training costs: seconds, bytes and collectives of each layer on a device, and of a plan that is given.

Nothing here chooses a plan. `layer_costs` prices every block of a model under a `Setting`; `estimate_iteration` puts
blocks together to stages and stages to an iteration. Constants are in `efficiency`, and nowhere else.
"""

from nest.costing.efficiency import Efficiency, efficiency_of
from nest.costing.flops import model_flops
from nest.costing.framework import RECOMPUTE, Framework, Recompute
from nest.costing.frameworks import FRAMEWORKS, framework_named
from nest.costing.iteration import Estimate, estimate_iteration
from nest.costing.layer import Buckets, Collective, Kept, LayerCost, OperatorCost
from nest.costing.layout import Layout, split_stages
from nest.costing.memory import Position, Sharding, StageMemory, stage_memory, stage_parameters
from nest.costing.placed import PlacedNetwork, network_of, placed
from nest.costing.pricing import layer_costs
from nest.costing.profile import LayerProfile, Measurement
from nest.costing.recipe import RECIPES, Recipe, recipe_named
from nest.costing.setting import Setting

__all__ = [
    "FRAMEWORKS",
    "RECIPES",
    "RECOMPUTE",
    "Buckets",
    "Collective",
    "Efficiency",
    "Estimate",
    "Framework",
    "Kept",
    "LayerCost",
    "LayerProfile",
    "Layout",
    "Measurement",
    "OperatorCost",
    "PlacedNetwork",
    "Position",
    "Recipe",
    "Recompute",
    "Setting",
    "Sharding",
    "StageMemory",
    "efficiency_of",
    "estimate_iteration",
    "framework_named",
    "layer_costs",
    "model_flops",
    "network_of",
    "placed",
    "recipe_named",
    "split_stages",
    "stage_memory",
    "stage_parameters",
]
