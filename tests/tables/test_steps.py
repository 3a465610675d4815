"""Claims: decoded numbers and dates keep the step of the training values.

1. The step of integers and dates is what all their differences are multiples of: a day for
   midnights, a week for Saturdays, 100 for prices in hundreds. That of other numbers is their last
   decimal, up to six; continuous numbers have none.
2. Whatever a network gives is decoded to a value on the step, within the training range; decimals
   are the floats that are written like that.
3. Training values return exactly; without clipping, other values stay on the step too.
4. Few values say nothing of a step.
5. The step is the same however the rows come in blocks, and of the whole table where only a sample
   of its numbers is kept. It survives JSON; a step that cannot be is refused.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.tables.examples import all_kinds
from tests.tables.test_fit_blocks import Cut
from varjepa.errors import InputError
from varjepa.tables import SCALINGS, Scaling, TableCodec
from varjepa.tables.columns import MemoryLimits

ROWS = 300
DAY = 86_400 * 10**6
RNG = np.random.default_rng(0)
N = RNG.integers(0, 400, ROWS)
SATURDAY = 2  # 3 January 1970

COLUMNS: dict[str, tuple[Any, Any]] = {
    "integers": (N, 1),
    "hundreds": (100 * N - 37, 100),
    "unsigned": (np.uint64(2**64 - 1) - np.uint64(12) * N.astype(np.uint64), 12),
    "wide": (2**55 * (N % 128) - 2**62, 2**55),
    "integer floats": (pa.array(5.0 * N, mask=N < 40), 5.0),
    "cents": ((N + 300) / 100, 0.01),
    "float32 cents": ((N / 100 + 3).astype(np.float32), 0.01),
    "sums of tenths": (0.1 * N, 0.1),
    "six decimals": (N / 10**6, 1e-6),
    "seven decimals": (N / 10**7, None),
    "continuous": (RNG.normal(size=ROWS), None),
    "large": (RNG.uniform(1e12, 2e12, ROWS), None),
    "decimals": ([Decimal(int(n)) / 4 for n in N], 0.01),
    "text": ([f"{n / 10:.1f}" for n in N], 0.1),
    "midnights": (pa.array(DAY * N, pa.timestamp("us")), DAY),
    "Saturdays": (pa.array(7 * N + SATURDAY, pa.int32()).cast(pa.date32()), 7),
    "days": (pa.array(N, pa.int32()).cast(pa.date32()), 1),
    "whole minutes": (pa.array(60_000 * N, pa.duration("ms")), 60.0),
    "constant": (np.full(ROWS, 7), None),
    "nothing": (pa.nulls(ROWS, pa.float64()), None),
}
TABLE = pa.table({name: values for name, (values, _) in COLUMNS.items()})


def steps(codec: TableCodec) -> dict[str, Any]:
    found = [n for n in codec.numeric if n.part in ("value", "elapsed")]
    return {number.column: number.scaler.step for number in found}


def decoded(codec: TableCodec, unit: Any, clip: bool = True) -> pa.Table:
    """Each number of ``unit`` in all columns."""
    return codec.decode(
        np.tile(unit[:, None], (1, len(codec.numeric))), np.zeros((len(unit), 0)), clip=clip
    )


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_step_of_each_column(scaling: Scaling) -> None:
    codec = TableCodec.fit(TABLE, all_kinds(TABLE), scaling=scaling)
    assert steps(codec) == {name: step for name, (_, step) in COLUMNS.items()}
    assert TableCodec.from_json(json.loads(json.dumps(codec.to_json()))) == codec


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_whatever_is_decoded_is_on_the_step(scaling: Scaling, clip: bool) -> None:
    found = decoded(TableCodec.fit(TABLE, scaling=scaling), RNG.uniform(-0.4, 1.4, 999), clip)
    assert {n % 100 for n in found["hundreds"].to_pylist()} == {63}
    assert {n % 5 for n in found["integer floats"].to_pylist()} == {0.0}
    assert {t.time() for t in found["midnights"].to_pylist()} == {dt.time()}
    assert {d.weekday() for d in found["Saturdays"].to_pylist()} == {5}
    assert {d.total_seconds() % 60 for d in found["whole minutes"].to_pylist()} == {0.0}
    assert {x - float(f"{x:.2f}") for x in found["cents"].to_pylist()} == {0.0}
    assert {x - float(f"{x:.1f}") for x in found["sums of tenths"].to_pylist()} == {0.0}
    single = found["float32 cents"].to_numpy()
    assert (single == single.astype(np.float64).round(2).astype(np.float32)).all()
    assert len(set(found["continuous"].to_pylist())) > 300
    if clip:
        for name in ("hundreds", "cents", "midnights", "Saturdays"):
            known = TABLE[name].to_pylist()
            assert min(known) <= min(found[name].to_pylist())
            assert max(found[name].to_pylist()) <= max(known)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_training_values_return(scaling: Scaling) -> None:
    exact = ["hundreds", "unsigned", "wide", "cents", "midnights", "Saturdays", "whole minutes"]
    codec = TableCodec.fit(TABLE.select(exact), scaling=scaling)
    assert codec.from_unit(codec.to_unit(TABLE.select(exact))).equals(TABLE.select(exact))


def test_few_values_say_nothing_of_a_step() -> None:
    few = TableCodec.fit(TABLE.slice(0, 19))
    assert set(steps(few).values()) == {None}
    assert decoded(few, np.array([0.4331]))["integers"].to_pylist()[0] is not None


@pytest.mark.parametrize("places", [(1,), (150,), tuple(range(7, ROWS, 7))])
@pytest.mark.parametrize("limits", [None, MemoryLimits(numbers=500)])
def test_blocks_do_not_matter(places: tuple[int, ...], limits: MemoryLimits | None) -> None:
    streamed = TableCodec.fit(Cut(TABLE, *places), limits=limits)
    assert steps(streamed) == steps(TableCodec.fit(TABLE))


@pytest.mark.parametrize("step", [0, -100, 7, 100.0, 0.01, 10**30, True, "100"])
def test_a_step_that_cannot_be_is_refused(step: Any) -> None:
    plain = TableCodec.fit(TABLE.select(["hundreds"])).to_json()
    plain["numeric"][0]["step"] = step
    with pytest.raises(InputError, match=r"codec\.numeric\[0\]\.step must be"):
        TableCodec.from_json(plain)


@pytest.mark.parametrize("step", [0.0, 0.02, 0.3, 1.5, 1e-7, 1e300, 1])
def test_a_float_step_that_cannot_be_is_refused(step: Any) -> None:
    plain = TableCodec.fit(TABLE.select(["cents"])).to_json()
    plain["numeric"][0]["step"] = step
    with pytest.raises(InputError, match=r"codec\.numeric\[0\]\.step must be"):
        TableCodec.from_json(plain)
