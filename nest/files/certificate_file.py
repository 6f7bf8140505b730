"""Certificates as JSON under the schema ``nest.certificate/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from nest.certify import Certificate, Proof
from nest.files.plan_file import plan_document
from nest.plan import Plan
from nest.problem import Problem

CERTIFICATE_SCHEMA = "nest.certificate/1"


def certificate_document(problem: Problem, certificate: Certificate, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return a certificate as plain objects.

    Parameters
    ----------
    versions
        What it was made with, by name.
    """
    ticks = certificate.objective_ticks
    unit = Fraction(repr(certificate.time_unit_s))
    return {
        "schema": CERTIFICATE_SCHEMA,
        "problem": problem.name,
        "preset": problem.preset.name,
        "objective": None if ticks is None else float(ticks * certificate.time.tick / unit),
        "objective_ticks": ticks,
        "tick_s": certificate.time.tick_s,
        **proof_document(certificate),
        "violations": [asdict(violation) for violation in certificate.violations],
        "plan": _plan(certificate.plan),
        "better": _plan(certificate.better),
        "better_ticks": certificate.better_ticks,
        "provenance": dict(versions),
    }


def proof_document(certificate: Certificate) -> dict[str, Any]:
    """Return the verdict of a certificate and what each prover found."""
    return {"verdict": certificate.finding.value, "provers": [prover_document(proof) for proof in certificate.proofs]}


def prover_document(proof: Proof) -> dict[str, Any]:
    """Return what one prover found, and how."""
    return {
        "name": proof.name,
        "version": proof.version,
        "verdict": proof.outcome.value,
        "bound_ticks": proof.bound_ticks,
        "wall_s": proof.wall_s,
        "parameters": dict(proof.parameters),
        "detail": proof.detail,
    }


def _plan(plan: Plan | None) -> dict[str, Any] | None:
    return None if plan is None else plan_document(plan)
