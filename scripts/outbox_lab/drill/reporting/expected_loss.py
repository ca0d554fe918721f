"""Estimate means from the counts of a drill, each with an upper bound at a confidence of 95 %."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
BISECTIONS = 60


@dataclass(frozen=True)
class Estimate:
    """An estimated mean, and the upper bound of its one-sided 95 % confidence interval."""

    mean: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """Return a new estimate, in which the mean and the bound are multiplied by `factor`."""
        return Estimate(self.mean * factor, self.high * factor)


def per_trial(count: int, trials: int) -> Estimate:
    """Estimate the count per trial from the `count` independent events in `trials` trials. `trials` must be at least 1.

    The bound is the exact one-sided bound of a Poisson mean. If `count` is 0, it is 3 / `trials` (rule of three).
    """
    high = 3.0 if count == 0 else _upper_poisson_mean(count)
    return Estimate(count / trials, high / trials)


def _poisson_cdf(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable with this mean is at most `count`."""
    logarithms = (number * math.log(mean) - mean - math.lgamma(number + 1) for number in range(count + 1))
    return math.fsum(math.exp(value) for value in logarithms)


def _upper_poisson_mean(count: int) -> float:
    """Return the smallest mean with which at most `count` events have a probability of at most 1 - CONFIDENCE."""
    low, high = float(count), count + 10 * math.sqrt(count) + 20
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _poisson_cdf(count, middle) <= 1 - CONFIDENCE else (middle, high)
    return high
