"""What a run computes, by the convention by which throughput is published: tokens and model FLOPs of an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nest.costing import model_flops
from nest.runs import Run


@dataclass(frozen=True, slots=True)
class Workload:
    """One iteration of a run.

    Parameters
    ----------
    flops
        Model FLOPs, as `nest.costing.model_flops` counts them.
    tokens
        Of all sequences.
    peaks
        FLOP/s of one device of each class of the cluster in the data type of the products, its own class first.
    dtype
        That type.
    """

    flops: int
    tokens: int
    peaks: tuple[float, ...]
    dtype: str

    @classmethod
    def of(cls, run: Run | None) -> Workload | None:
        """Return that of a run, None where there is none: a problem alone does not say what its layers compute."""
        if run is None:
            return None
        flops = model_flops(run.model, run.global_batch, run.sequence, lengths=run.lengths)
        return cls(flops, run.global_batch * run.sequence, run.hardware.peaks(run.dtype), run.dtype)

    def flops_per_device(self, iteration_s: float, devices: int) -> float:
        """Return the FLOP/s of each of the devices that an iteration keeps busy."""
        return self.flops / iteration_s / devices

    def utilisation(self, iteration_s: float, counts: Sequence[int]) -> float:
        """Return these over the peak (MFU), of several classes the mean of the peaks of what is used.

        Parameters
        ----------
        counts
            Devices in use of each class, in the order of ``peaks``.
        """
        return self.flops / iteration_s / sum(count * peak for count, peak in zip(counts, self.peaks, strict=True))
