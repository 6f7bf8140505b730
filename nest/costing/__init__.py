"""What training costs: seconds, bytes and collectives of each layer on a device.

Nothing here chooses a plan, or prices one. `layer_costs` prices every block of a model under a `Setting`; `nest.runs`
poses problems of them, whose plans the judge prices. Constants are in `efficiency`, and nowhere else.
"""

from nest.costing.assumed import Assumed, assumed_framework
from nest.costing.efficiency import Efficiency, efficiency_of
from nest.costing.flops import model_flops
from nest.costing.framework import RECOMPUTE, Framework, Recompute
from nest.costing.frameworks import FRAMEWORKS, framework_named
from nest.costing.layer import Buckets, Collective, Kept, LayerCost, OperatorCost
from nest.costing.layout import Layout, split_parts
from nest.costing.pricing import layer_costs
from nest.costing.profile import LayerProfile, Measurement
from nest.costing.recipe import RECIPES, Recipe, recipe_named
from nest.costing.setting import Setting

__all__ = [
    "FRAMEWORKS",
    "RECIPES",
    "RECOMPUTE",
    "Assumed",
    "Buckets",
    "Collective",
    "Efficiency",
    "Framework",
    "Kept",
    "LayerCost",
    "LayerProfile",
    "Layout",
    "Measurement",
    "OperatorCost",
    "Recipe",
    "Recompute",
    "Setting",
    "assumed_framework",
    "efficiency_of",
    "framework_named",
    "layer_costs",
    "model_flops",
    "recipe_named",
    "split_parts",
]
