"""Claims: a number becomes small and finite, and returns.

1. min_max is [0, 1] on the training rows, standard has mean 0 and deviation 1, quantile is nearly
   uniform; each is increasing in the value.
2. Values outside the training range are squeezed into (−1, 0) and (1, 2), finite whatever they are,
   and come back clipped by default, unclipped on request.
3. Integers return exactly through float64: near ±2^63, near 2^64, and over ranges up to 2^51.
4. Through float32 every method keeps numbers within 1e-6 of the range, outliers or not, and
   integers exactly over ranges up to 2^22 (quantile: 2^19).
5. Ranges wider than the largest float and narrower than the smallest normal one work.
6. Constant columns sit in one place and return; empty columns have no scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from varjepa.errors import InputError
from varjepa.tables.scaling import SCALINGS, Scaler, Scaling

RNG = np.random.default_rng(0)
SKEWED = np.append(np.exp(3 * RNG.standard_normal(5000)), 1e6)


def fit(values: Any, scaling: Scaling = "min_max") -> Scaler:
    values = np.asarray(values)
    return Scaler.fit(values, values.dtype.kind in "iu", scaling)


def test_what_each_method_promises_on_training_rows() -> None:
    unit = fit(SKEWED).to_unit(SKEWED)
    assert (unit.min(), unit.max()) == (0.0, 1.0)
    unit = fit(SKEWED, "standard").to_unit(SKEWED)
    np.testing.assert_allclose([unit.mean(), unit.std()], [0.0, 1.0], atol=1e-9)
    unit = fit(SKEWED, "quantile").to_unit(SKEWED)
    assert (unit.min(), unit.max()) == (0.0, 1.0)
    uniform = np.linspace(0, 1, 11)
    # 5 % of the curve is plain min–max, which an outlier presses to 0
    np.testing.assert_allclose(np.quantile(unit, uniform), uniform, atol=0.051)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_increasing_and_finite_everywhere(scaling: Scaling) -> None:
    scaler = fit(SKEWED, scaling)
    largest = np.finfo(np.float64).max
    wild = np.sort(np.concatenate([[-largest, -1e9, largest, 1e9], SKEWED]))
    unit = scaler.to_unit(wild)
    assert np.isfinite(unit).all()
    assert (np.diff(unit) >= 0).all()
    inside = np.unique(SKEWED.round(3))[1:-1]
    assert (np.diff(scaler.to_unit(inside)) > 0).all()


@pytest.mark.parametrize("scaling", ["min_max", "quantile"])
def test_outside_the_training_range(scaling: Scaling) -> None:
    scaler = fit([0.0, 1.0, 10.0], scaling)
    outside = np.array([-1e300, -3.0, -0.5, 10.5, 13.0, 1e300])
    unit = scaler.to_unit(outside)
    assert ((unit[:3] < 0) & (unit[:3] >= -1)).all()
    assert ((unit[3:] > 1) & (unit[3:] <= 2)).all()
    assert scaler.from_unit(unit).tolist() == [0.0] * 3 + [10.0] * 3
    np.testing.assert_allclose(scaler.from_unit(unit, clip=False)[1:5], outside[1:5], rtol=1e-9)
    assert np.isfinite(scaler.from_unit(unit, clip=False)).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_integers_outside_the_range_stay_integers(scaling: Scaling) -> None:
    scaler = fit(np.array([0, 5, 10]), scaling)
    outside = np.array([-4, 3, 14])
    assert scaler.from_unit(scaler.to_unit(outside)).tolist() == [0, 3, 10]
    assert scaler.from_unit(scaler.to_unit(outside), clip=False).tolist() == [-4, 3, 14]
    ends = fit(np.array([-(2**63), 2**63 - 1]), scaling)
    assert ends.from_unit(np.array([-50.0, 50.0]), clip=False).dtype == np.int64


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    "values",
    [
        np.array([2**63 - 1, 2**63 - 2, 2**63 - 40_000]),
        np.array([-(2**63), -(2**63) + 1, -(2**63) + 77]),
        np.array([2**64 - 1, 2**64 - 9, 2**64 - 500], dtype=np.uint64),
        np.array([0, 2**45 - 1, 12345678901]),
        np.array([2**53 + 1, 2**53, 2**53 + 3]),
    ],
)
def test_integers_return_exactly(values: Any, scaling: Scaling) -> None:
    scaler = fit(values, scaling)
    back = scaler.from_unit(scaler.to_unit(values))
    assert back.dtype == values.dtype
    assert back.tolist() == values.tolist()


@given(hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(-(2**50), 2**50)))
def test_any_integers_below_2_51_return_exactly(values: Any) -> None:
    scaler = fit(values)
    assert scaler.from_unit(scaler.to_unit(values)).tolist() == values.tolist()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_full_range_of_64_bits(scaling: Scaling) -> None:
    for values in (
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array([0, 2**63, 2**64 - 1], dtype=np.uint64),
    ):
        scaler = fit(values, scaling)
        back = scaler.from_unit(scaler.to_unit(values))
        if scaling != "standard":  # whose ends are the results of a division
            assert (back[0], back[2]) == (values[0], values[2])
        for one, other in zip(back.tolist(), values.tolist(), strict=True):
            assert abs(one - other) < 2**14


@pytest.mark.parametrize(("given_as", "low"), [(np.uint64, -5), (np.float64, -5), (np.int64, 2)])
def test_other_number_types_than_fitted(given_as: Any, low: int) -> None:
    scaler = fit(np.array([low, 20]))
    values = np.array([3, 7, 20], dtype=given_as)
    expected = (np.array([3, 7, 20]) - low) / (20 - low)
    assert scaler.to_unit(values).tolist() == expected.tolist()


def test_large_unsigned_values_given_to_a_signed_column() -> None:
    scaler = fit(np.array([-5, 20]))
    assert scaler.to_unit(np.array([2**64 - 1, 2**64 - 5], dtype=np.uint64)).tolist() == [2.0, 2.0]


def test_knots_too_close_for_a_slope() -> None:
    unit = fit([0.0, 1e-310, 1.0], "quantile").to_unit(np.array([0.0, 5e-311, 1e-310, 0.5, 1.0]))
    assert np.isfinite(unit).all()
    assert (np.diff(unit) >= 0).all()


@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False, width=64)),
    st.sampled_from(SCALINGS),
)
def test_any_floats_return_through_float32(values: Any, scaling: Scaling) -> None:
    values = values[np.isfinite(values)]
    if not len(values):
        return
    scaler = fit(values, scaling)
    back = scaler.from_unit(scaler.to_unit(values).astype(np.float32).astype(np.float64))
    half_error = np.abs(back / 2 - values / 2)  # halves, because ranges may overflow
    assert (half_error <= 1e-6 * (values.max() / 2 - values.min() / 2)).all()
    assert ((back >= values.min()) & (back <= values.max())).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_outliers_do_not_spoil_float32(scaling: Scaling) -> None:
    scaler = fit(SKEWED, scaling)
    probes = np.linspace(SKEWED.min(), SKEWED.max(), 10_001)
    back = scaler.from_unit(scaler.to_unit(probes).astype(np.float32).astype(np.float64))
    assert np.abs(back - probes).max() <= 1e-6 * np.ptp(SKEWED)


@pytest.mark.parametrize(
    ("scaling", "span"), [("min_max", 2**22), ("standard", 2**22), ("quantile", 2**19)]
)
def test_integers_return_exactly_through_float32(scaling: Scaling, span: int) -> None:
    values = np.append(RNG.integers(0, 50, 500), [0, span - 1, span // 2, span // 3]) - 1000
    scaler = fit(values, scaling)
    probes = np.arange(values.min(), values.max() + 1, 7)
    back = scaler.from_unit(scaler.to_unit(probes).astype(np.float32).astype(np.float64))
    assert np.array_equal(back, probes)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    "values",
    [
        [-1.7976931348623157e308, 0.0, 1.7976931348623157e308],
        [0.0, 5e-324, 1e-323],
        [1e-300, 2e-300, 5e-300],
        [1e300, 2e300],
        [1e16, 1e16 + 2, 1e16 + 4],
    ],
)
def test_extreme_ranges(values: list[float], scaling: Scaling) -> None:
    scaler = fit(values, scaling)
    unit = scaler.to_unit(np.array(values))
    assert np.isfinite(unit).all()
    assert (np.diff(unit) > 0).all()
    back = scaler.from_unit(unit)
    if scaling != "standard":
        assert (back[0], back[-1]) == (values[0], values[-1])
    np.testing.assert_allclose(back, values, rtol=1e-12, atol=1e294 if values[-1] > 1e307 else 0)


@pytest.mark.parametrize(("scaling", "place"), [("min_max", 0.5), ("standard", 0.0)])
def test_constant_columns(scaling: Scaling, place: float) -> None:
    for value in (7, 7.25, -1e300):
        scaler = fit([value, value], scaling)
        assert scaler.to_unit(np.array([value, 9.0])).tolist() == [place, place]
        assert scaler.from_unit(np.array([place, 0.0, 1.0])).tolist() == [value] * 3


def test_empty_columns_have_no_scale() -> None:
    scaler = fit(np.array([]))
    assert scaler.is_empty
    assert scaler.to_unit(np.array([1.0])).tolist() == [0.0]


def test_whole_floats_are_rounded() -> None:
    scaler = Scaler.fit(np.array([0.0, 3.0]), True, "min_max")
    assert scaler.from_unit(np.array([0.4])).tolist() == [1.0]


def test_unknown_scaling() -> None:
    with pytest.raises(InputError, match="scaling must be one of min_max, standard, quantile"):
        fit([1.0], "log")  # type: ignore[arg-type]
