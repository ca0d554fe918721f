"""Upper bounds of the expected loss."""

from __future__ import annotations

import pytest

from outbox_lab.drill.reporting.expected_loss import per_trial


@pytest.mark.parametrize(
    ("count", "high"),
    [(1, 4.744), (5, 10.513), (10, 16.962), (100, 118.079)],  # half of the 95 % quantile of chi-square, 2 (count + 1)
)
def test_bounds_are_one_sided_and_exact(count: int, high: float) -> None:
    estimate = per_trial(count, 1)
    assert (estimate.mean, estimate.high) == pytest.approx((count, high), rel=1e-3)


def test_no_loss_has_the_upper_bound_of_the_rule_of_three() -> None:
    estimate = per_trial(0, 100)
    assert (estimate.mean, estimate.high) == (0, 0.03)


def test_bounds_are_per_trial_and_scale() -> None:
    assert per_trial(10, 5).scaled(2).mean == 4
