"""The claim that no plan takes less than a value, under the objective `simulated`: put to every outer choice."""

from __future__ import annotations

from collections.abc import Iterator

from nest.certificate.choices import Undecided
from nest.certificate.played_choices import PlayedChoices
from nest.certificate.played_chunks import PlayedChunks, fast_enough
from nest.certificate.played_plans import PlayedPlans
from nest.certificate.played_stages import PlayedStages
from nest.certificate.sum_check import Claim, interleaved
from nest.certificate.sum_choices import Counts, Left, SumChoice
from nest.certificate.sum_chunks import Chunked, ChunkedStages
from nest.certificate.sum_stages import standings
from nest.certificate.verdict import Closed, Verdict
from nest.plan import Plan
from nest.presets import ScheduleName
from nest.tables import GroupedBand, GroupedTables, Tables


def settle_played(tables: Tables, verdict: Verdict, deadline: float | None) -> None:
    """Write down what rules outer choices out, and the first plan that takes less than the value.

    Raises
    ------
    Undecided
        As `settle_sums` does.
    """
    claim, pipelines = _Played(tables, verdict, deadline), interleaved(tables)
    verdict.choices = sum(map(len, pipelines.values()))
    for schedule in sorted(tables.problem.choices.schedules - {"interleaved"}):
        if verdict.better is None:
            claim.settle_runs(schedule)
    claim.settle_interleaved(pipelines)
    if claim.tied and verdict.better is None:
        raise Undecided


class _Played(Claim):
    """What is put to the outer choices: of each schedule its own, as none stands for another."""

    def narrowed(self, tables: GroupedTables, schedule: ScheduleName, counts: Counts) -> Iterator[Left]:
        """Yield stages and replicas of a variant that the mean does not rule out, and those that memory does not."""
        choices = PlayedChoices(tables, schedule, self.verdict.value)
        fast = choices.by_mean(*counts.pairs())
        yield fast
        yield choices.by_memory(fast)

    def closed(self, choice: SumChoice) -> Closed:
        """Return an outer choice as one that is ruled out."""
        found = Closed(choice.variant, choice.stages, choice.replicas, choice.arrangement)
        return found._replace(schedule=choice.schedule)

    def better(self, band: GroupedBand, choice: SumChoice) -> Plan | None:
        """Return a plan of an outer choice below the value, None if there is none wherever it stands."""
        for each in standings(band.tables, choice):
            self.watch()
            plan = PlayedPlans(PlayedStages(band, choice, each), self.verdict.value, self.watch).better()
            if plan is not None:
                return plan
        return None

    def fast_enough(self, tables: GroupedTables, choices: list[Chunked]) -> list[Chunked]:
        """Return the interleaved outer choices of a variant that work and exchange do not rule out."""
        return fast_enough(tables, choices, self.verdict.value)

    def better_interleaved(self, stages: ChunkedStages) -> Plan | None:
        """Return a plan of an interleaved outer choice in one place below the value, None if there is none."""
        return PlayedChunks(stages, self.verdict.value, self.watch).better()
