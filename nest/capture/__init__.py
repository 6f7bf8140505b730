"""Any `torch.nn.Module` as a layer graph: what its layers compute, keep and send, and the problem that it poses.

Reading, writing and posing need no torch; `nest.capture.run` captures and is imported by whoever has it.
"""

from nest.capture.captured import Affine, Captured, CapturedEdge, CapturedLayer, Figures, Kernel
from nest.capture.document import is_captured, read_captured, write_captured
from nest.capture.inputs import Input, read_input
from nest.capture.pose import Wanted, captured_problem, usual_recipe

__all__ = [
    "Affine",
    "Captured",
    "CapturedEdge",
    "CapturedLayer",
    "Figures",
    "Input",
    "Kernel",
    "Wanted",
    "captured_problem",
    "is_captured",
    "read_captured",
    "read_input",
    "usual_recipe",
    "write_captured",
]
