"""Times of layers, measured on the device at hand, as the tables that `nest solve --profile` takes.

Tables and shapes need no torch; `nest.profile.module` and `nest.profile.model` measure, and are imported by whoever has
it.
"""

from nest.profile.shapes import EmbeddingShape, HeadShape, LayerShape, Shape, shape_of
from nest.profile.table import profile_csv

__all__ = ["EmbeddingShape", "HeadShape", "LayerShape", "Shape", "profile_csv", "shape_of"]
