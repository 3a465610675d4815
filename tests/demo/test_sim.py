"""Claims: SIM is the table the appendix describes, and stays the one it was frozen as.

1. 10,000 rows, x0..x27 doubles and c0..c3 strings, neither label nor ambiguity among them.
2. The same seed draws the same table on every machine; the frozen one has a known checksum.
   Another seed draws another table; another flip rate changes nothing but the categorical columns.
3. Classes and alternatives are equally frequent, u is uniform, prototypes are equally far apart.
4. Low u is almost perfectly separable by the nearest prototype, high u clearly less.
5. Rows go toward the alternative prototype by blend · u², their random subset further.
6. The noise around a row's centre is the cluster's, and grows with u in the noisy dimensions only:
   ambiguous rows are not calmer, and without labels they lie farther from every prototype.
7. Levels are quantile bins of one column each; values are flipped with probability rate · u².
8. Settings that make no table are refused by name.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from varjepa.demo.sim import SimSettings, SimTable, draw_sim
from varjepa.errors import InputError

FROZEN = "737e38dc1ba7d59a"
ORDER = {"low": 0, "mid": 1, "high": 2}


@cache
def sim(seed: int = 0) -> SimTable:
    return draw_sim(seed=seed)


def checksum(table: SimTable) -> str:
    """Six decimals, as integers: the last bits of a double may differ between machines."""
    digest = hashlib.sha256()
    for values in (table.numeric, table.ambiguity):
        digest.update(np.rint(values * 1e6).astype("<i8").tobytes())
    digest.update(table.label.astype("<i8").tobytes())
    digest.update("\n".join(table.categorical.ravel()).encode())
    return digest.hexdigest()[:16]


def distances(table: SimTable) -> NDArray[np.float64]:
    """From every row to every prototype, (N, classes)."""
    return np.linalg.norm(table.numeric[:, None] - table.prototypes, axis=2)


def informative(table: SimTable) -> NDArray[np.int64]:
    """Dimensions, those that part the prototypes most first."""
    return np.argsort(-table.prototypes.var(axis=0))


def test_shapes_names_and_types() -> None:
    table = sim()
    names = [f"x{j}" for j in range(28)] + [f"c{k}" for k in range(4)]
    assert table.numeric.shape == (10_000, 28)
    assert table.numeric.dtype == np.float64
    assert table.categorical.shape == (10_000, 4)
    assert table.label.shape == table.ambiguity.shape == (10_000,)
    assert list(table.columns()) == names
    arrow = table.to_arrow()
    assert arrow.column_names == names
    assert arrow.schema.types == [pa.float64()] * 28 + [pa.string()] * 4
    np.testing.assert_array_equal(arrow["x27"].to_numpy(), table.numeric[:, 27])
    assert arrow["c3"].to_pylist() == table.categorical[:, 3].tolist()


def test_the_frozen_table_is_the_default() -> None:
    assert checksum(sim()) == FROZEN
    assert checksum(draw_sim(SimSettings(), seed=0)) == FROZEN
    assert checksum(sim(1)) != FROZEN


def test_parts_have_streams_of_their_own() -> None:
    calm = draw_sim(SimSettings(flip_rate=0.0))
    np.testing.assert_array_equal(calm.numeric, sim().numeric)
    np.testing.assert_array_equal(calm.label, sim().label)
    assert not calm.flipped.any()
    assert (calm.categorical != sim().categorical).any()
    np.testing.assert_array_equal(draw_sim(SimSettings(rows=7)).prototypes, sim().prototypes)


def test_classes_alternatives_and_ambiguity_are_uniform() -> None:
    table = sim()
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (table.label, table.alternative), 1)
    assert (np.diag(pairs) == 0).all()
    np.testing.assert_allclose(pairs[~np.eye(3, dtype=bool)] / 10_000, 1 / 6, atol=0.015)
    steps = np.arange(1, 10_001) / 10_000
    assert np.abs(np.sort(table.ambiguity) - steps).max() < 0.02  # Kolmogorov–Smirnov, p ≈ .001
    for c in range(3):  # ambiguity must not tell the class
        assert abs(table.ambiguity[table.label == c].mean() - 0.5) < 0.02


@pytest.mark.parametrize("seed", [0, 1])
def test_prototypes_are_equally_far_apart(seed: int) -> None:
    prototypes = sim(seed).prototypes
    apart = np.linalg.norm(prototypes[[0, 0, 1]] - prototypes[[1, 2, 2]], axis=1)
    np.testing.assert_allclose(apart, SimSettings().separation, rtol=1e-9)


def test_easy_rows_are_separable_and_ambiguous_rows_are_not() -> None:
    table = sim()
    is_right = distances(table).argmin(axis=1) == table.label
    assert is_right[table.ambiguity < 0.3].mean() > 0.99
    assert 0.5 < is_right[table.ambiguity > 0.9].mean() < 0.9
    taken_for = distances(table).argmin(axis=1)[~is_right]
    assert (taken_for == table.alternative[~is_right]).mean() > 0.7  # any other class: one half


def test_rows_go_toward_the_alternative_prototype() -> None:
    table, o = sim(), SimSettings()
    way = table.prototypes[table.alternative] - table.prototypes[table.label]
    u_amb = table.ambiguity[:, None] ** 2
    step = (table.centre - table.prototypes[table.label]) / way / u_amb
    in_subset = step > o.blend + o.subset_blend / 2
    np.testing.assert_allclose(step[~in_subset], o.blend, rtol=1e-3)
    np.testing.assert_allclose(step[in_subset], o.blend + o.subset_blend, rtol=1e-3)
    np.testing.assert_allclose(in_subset.mean(axis=0), o.subset_share, atol=0.02)
    # how far the visible rows went, read off along the way to the other prototype
    went = ((table.numeric - table.prototypes[table.label]) * way).sum(axis=1) / o.separation**2
    slope = np.polyfit(table.ambiguity**2, went, 1)[0]
    assert abs(slope - (o.blend + o.subset_share * o.subset_blend)) < 0.03


def test_ambiguous_rows_are_not_calmer() -> None:
    table, o = sim(), SimSettings()
    noise = table.numeric - table.centre
    noisy, plain = informative(table)[: o.noisy], informative(table)[o.noisy :]
    for low in np.arange(0, 1, 0.2):
        rows = (table.ambiguity >= low) & (table.ambiguity < low + 0.2)
        assert abs(noise[np.ix_(rows, plain)].std() - o.spread) < 0.02
    u_amb = table.ambiguity[:, None] ** 2
    expected = np.sqrt(o.spread**2 + (o.noise * u_amb) ** 2)
    scaled = noise[:, noisy] / expected
    for low in np.arange(0, 1, 0.2):
        rows = (table.ambiguity >= low) & (table.ambiguity < low + 0.2)
        assert abs(scaled[rows].std() - 1) < 0.03


def test_ambiguity_shows_without_labels() -> None:
    table = sim()
    nearest = distances(table).min(axis=1)
    fifths = [
        nearest[(table.ambiguity >= low) & (table.ambiguity < low + 0.2)].mean()
        for low in (0.2, 0.4, 0.6, 0.8)
    ]
    assert (np.diff(fifths) > 0.05).all(), fifths


def test_levels_are_quantile_bins() -> None:
    table, o = sim(), SimSettings()
    binned = informative(table)[o.noisy : o.noisy + o.binned]
    for k, j in enumerate(binned):
        level = np.vectorize(ORDER.get)(table.categorical[:, k])
        values, is_flipped = table.numeric[:, j], table.flipped[:, k]
        edges = np.sort(values)[[3333, 6666]]  # the last value of the lower and of the middle third
        bin_of = (values[:, None] > edges).sum(axis=1)
        np.testing.assert_array_equal(level != bin_of, is_flipped)
        # both other levels are equally likely after a flip
        up = (level - bin_of)[is_flipped] % 3 == 1
        assert abs(up.mean() - 0.5) < 0.05


def test_flips_increase_with_ambiguity() -> None:
    table, o = sim(), SimSettings()
    for low in np.arange(0, 1, 0.2):
        rows = (table.ambiguity >= low) & (table.ambiguity < low + 0.2)
        expected = o.flip_rate * (table.ambiguity[rows] ** 2).mean()
        assert abs(table.flipped[rows].mean() - expected) < 0.015


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 0),
        ("classes", 1),
        ("noisy", 25),
        ("levels", ("low", "low")),
        ("subset_share", 1.5),
        ("flip_rate", -0.1),
    ],
)
def test_impossible_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        SimSettings(**{name: value})
