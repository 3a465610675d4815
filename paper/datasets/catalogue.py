"""The seven datasets of Section 4.2: what they are, their columns, their splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from varjepa.errors import InputError

CATEGORY = pa.dictionary(pa.int8(), pa.string())
BYTE, SHORT, INT, DOUBLE = pa.uint8(), pa.int16(), pa.int32(), pa.float64()


@dataclass(frozen=True, slots=True)
class OpenmlTable:
    """The same table on OpenML; its columns come in our order under names of their own."""

    data_id: int
    name: str
    version: int
    classes: Mapping[str, str] | None = None
    """OpenML's spelling of each class → the source's, where they differ"""


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What a dataset must be; loading compares with it."""

    name: str
    """in commands, and of the file: ``name.parquet``"""
    short: str
    """in the paper's tables"""
    title: str
    rows: int
    """rows used, after a random subset where the paper takes one"""
    columns: Mapping[str, pa.DataType]
    """features of the source in order; ``CATEGORY`` marks the categorical ones"""
    classes: Mapping[str, str]
    """the source's spelling of each class → its name"""
    class_rows: tuple[int, ...]
    """rows of each class in the whole source"""
    sha256: str
    """of the whole source's canonical content"""
    source: str
    openml: OpenmlTable | None = None
    """None where the dataset is generated"""

    @property
    def source_rows(self) -> int:
        return sum(self.class_rows)

    @property
    def categorical(self) -> int:
        return sum(kind == CATEGORY for kind in self.columns.values())

    @property
    def numeric(self) -> int:
        return len(self.columns) - self.categorical


# seeds of everything that is drawn; each makes a ``numpy.random.default_rng``

ORDER_SEED = 101
"""row order of the real datasets, and with it which 10,000 rows Covertype and MNIST keep"""
U_SEED, R_SEED = 102, 103
"""MNIST: u, and the random images r"""
SIM_SEED = 0
"""SIM: the frozen table"""


def _kinds(names: str, kind: pa.DataType) -> dict[str, pa.DataType]:
    return dict.fromkeys(names.split(), kind)


def _same(values: str) -> dict[str, str]:
    """Classes whose names are the source's spelling."""
    return {value: value for value in values.split()}


# a later kind replaces an earlier one and leaves the column's place

_ADULT = _kinds(
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country",
    CATEGORY,
) | _kinds("age fnlwgt education-num capital-gain capital-loss hours-per-week", INT)

_COVERTYPE = (
    _kinds(
        "Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology "
        "Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm "
        "Horizontal_Distance_To_Fire_Points",
        SHORT,
    )
    | {f"Wilderness_Area{i}": BYTE for i in range(1, 5)}
    | {f"Soil_Type{i}": BYTE for i in range(1, 41)}
)

_ELECTRICITY = _kinds(
    "date day period nswprice nswdemand vicprice vicdemand transfer", DOUBLE
) | _kinds("day", CATEGORY)

_CREDIT = _kinds(
    "LIMIT_BAL SEX EDUCATION MARRIAGE AGE PAY_0 PAY_2 PAY_3 PAY_4 PAY_5 PAY_6 BILL_AMT1 BILL_AMT2 "
    "BILL_AMT3 BILL_AMT4 BILL_AMT5 BILL_AMT6 PAY_AMT1 PAY_AMT2 PAY_AMT3 PAY_AMT4 PAY_AMT5 PAY_AMT6",
    INT,
) | _kinds("SEX EDUCATION MARRIAGE", CATEGORY)

_BANK = _kinds(
    "age job marital education default balance housing loan contact day month duration campaign "
    "pdays previous poutcome",
    CATEGORY,
) | _kinds("age balance day duration campaign pdays previous", INT)

_SIM = {f"x{j}": DOUBLE for j in range(28)} | {f"c{k}": CATEGORY for k in range(4)}

_ALL = (
    DatasetInfo(
        name="adult",
        short="AD",
        title="Adult",
        rows=48_842,
        columns=_ADULT,
        classes=_same("<=50K >50K"),
        class_rows=(37_155, 11_687),
        sha256="49ce099a3e5608e32bebcf6f6083a2afeea301e46c42cdd736f2187fdb251124",
        source="UCI 2",
        openml=OpenmlTable(1590, "adult", 2),  # version 1 has its numbers cut into bins
    ),
    DatasetInfo(
        name="covertype",
        short="CO",
        title="Covertype",
        rows=10_000,
        columns=_COVERTYPE,
        classes={
            "1": "Spruce/Fir",
            "2": "Lodgepole Pine",
            "3": "Ponderosa Pine",
            "4": "Cottonwood/Willow",
            "5": "Aspen",
            "6": "Douglas-fir",
            "7": "Krummholz",
        },
        class_rows=(211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510),
        sha256="58c682d029d9acb4797f35d5dd5248da6a268229a04ff383ae9d7b01279e0f65",
        source="UCI 31",
        openml=OpenmlTable(1596, "covertype", 4),  # version 3 is standardised
    ),
    DatasetInfo(
        name="electricity",
        short="EL",
        title="Electricity",
        rows=45_312,
        columns=_ELECTRICITY,
        classes=_same("DOWN UP"),
        class_rows=(26_075, 19_237),
        sha256="edae0b9522c2e808b357e6d9f10c9f167c1020713c3ebf5d10dcf20fe0ab9799",
        source="OpenML 151",
        openml=OpenmlTable(151, "electricity", 1),
    ),
    DatasetInfo(
        name="credit_default",
        short="CC",
        title="Credit Card Default",
        rows=30_000,
        columns=_CREDIT,
        classes={"0": "no default", "1": "default"},
        class_rows=(23_364, 6_636),
        sha256="1222b968314b2624529deaf7a05b0e341a2ef13cd9449a983e97ab05e814e990",
        source="UCI 350",
        openml=OpenmlTable(42477, "default-of-credit-card-clients", 1),
    ),
    DatasetInfo(
        name="bank_marketing",
        short="BM",
        title="Bank Marketing",
        rows=45_211,
        columns=_BANK,
        classes=_same("no yes"),
        class_rows=(39_922, 5_289),
        sha256="777efc8f1751dca57fa64985facb455e1112f7d861b321bbc9b2bc62d709bf9a",
        source="UCI 222",
        openml=OpenmlTable(1461, "bank-marketing", 1, {"1": "no", "2": "yes"}),
    ),
    DatasetInfo(
        name="mnist",
        short="MNIST",
        title="MNIST",
        rows=10_000,
        columns={f"px{j}": BYTE for j in range(784)},
        classes=_same("0 1 2 3 4 5 6 7 8 9"),
        class_rows=(6_903, 7_877, 6_990, 7_141, 6_824, 6_313, 6_876, 7_293, 6_825, 6_958),
        sha256="62badef7eea56612d660a5146cf46f42d94383c337bd1060463944c1bb1b708a",
        source="OpenML 554",
        openml=OpenmlTable(554, "mnist_784", 1),
    ),
    DatasetInfo(
        name="sim",
        short="SIM",
        title="Simulated",
        rows=10_000,
        columns=_SIM,
        classes=_same("0 1 2"),
        class_rows=(3_364, 3_340, 3_296),
        sha256="d1f14cd148720e7936e08707bf8e24184ceb558dab75d5f9b3837bd620804a80",
        source="generated",
    ),
)

DATASETS: Mapping[str, DatasetInfo] = MappingProxyType({info.name: info for info in _ALL})
"""in the order of the paper's table"""


def dataset_info(name: str) -> DatasetInfo:
    """Look a dataset up by its name or by the paper's abbreviation, in any case.

    Examples:
        >>> dataset_info("AD").title
        'Adult'
    """
    for info in DATASETS.values():
        if name.lower() in (info.name, info.short.lower()):
            return info
    raise InputError(f"there is no dataset {name!r}; known are {', '.join(DATASETS)}")
