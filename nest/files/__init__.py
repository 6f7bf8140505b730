"""Problems, plans and results as files; `docs/file_format.md` describes them."""

from nest.files.certificate_file import certificate_document, proof_document
from nest.files.left_out import LeftOut
from nest.files.objective_file import frontier_document, least_document, price_frontier_document
from nest.files.plan_file import (
    ClaimedPlan,
    plan_document,
    read_claimed_plan,
    read_plan,
    result_document,
    write_plan,
    write_result,
)
from nest.files.problem_file import read_problem, read_reduced_problem
from nest.files.problem_write import problem_text, write_problem
from nest.files.schema import problem_schema
from nest.files.settings import apply_settings

__all__ = [
    "ClaimedPlan",
    "LeftOut",
    "apply_settings",
    "certificate_document",
    "frontier_document",
    "least_document",
    "plan_document",
    "price_frontier_document",
    "problem_schema",
    "problem_text",
    "proof_document",
    "read_claimed_plan",
    "read_plan",
    "read_problem",
    "read_reduced_problem",
    "result_document",
    "write_plan",
    "write_problem",
    "write_result",
]
