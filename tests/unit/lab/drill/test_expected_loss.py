"""Confidence intervals of the expected loss."""

from __future__ import annotations

import pytest

from outbox_lab.drill.reporting.expected_loss import per_trial


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 0.0253, 5.572), (5, 1.623, 11.668), (10, 4.795, 18.390), (100, 81.364, 121.627)],  # Garwood (1936), 95 %
)
def test_bounds_are_those_of_garwood(count: int, low: float, high: float) -> None:
    interval = per_trial(count, 1)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((count, low, high), rel=1e-3)


def test_no_loss_has_the_upper_bound_of_the_rule_of_three() -> None:
    interval = per_trial(0, 100)
    assert (interval.mean, interval.low, interval.high) == (0, 0, 0.03)


def test_bounds_are_per_trial_and_scale() -> None:
    assert per_trial(10, 5).scaled(2).mean == 4
