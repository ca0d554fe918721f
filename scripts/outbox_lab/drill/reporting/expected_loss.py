"""Estimate the expected loss per year, with a 95 % confidence interval, from the counts of a drill."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

CONFIDENCE = 0.95
BISECTIONS = 60


@dataclass(frozen=True)
class Interval:
    """An estimated mean, and the bounds of its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return a new interval, in which the mean and the bounds are multiplied by `factor`."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor)


def per_trial(count: int, trials: int) -> Interval:
    """Estimate the count per trial from the `count` events in `trials` trials. `trials` must be at least 1.

    The interval is Garwood's exact interval for a Poisson mean. If `count` is 0, the upper bound is 3 / `trials` (the
    one-sided rule of three).
    """
    if count == 0:
        return Interval(0.0, 0.0, 3 / trials)
    tail = (1 - CONFIDENCE) / 2
    low = _poisson_mean(lambda mean: 1 - _poisson_cdf(count - 1, mean) >= tail, count)
    high = _poisson_mean(lambda mean: _poisson_cdf(count, mean) <= tail, count)
    return Interval(count / trials, low / trials, high / trials)


def _poisson_cdf(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable with this mean is at most `count`."""
    logarithms = (number * math.log(mean) - mean - math.lgamma(number + 1) for number in range(count + 1))
    return math.fsum(math.exp(value) for value in logarithms)


def _poisson_mean(reached: Callable[[float], bool], count: int) -> float:
    """Return the smallest mean for which `reached` is true. For all larger means, `reached` must be true too."""
    low, high = 1e-9, count + 10 * math.sqrt(count) + 20
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
