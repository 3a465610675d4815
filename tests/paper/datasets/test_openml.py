"""Claims: what scikit-learn's fetcher returns becomes the table of our Parquet files.

1. Through scikit-learn's own fetcher and ARFF parser, with only the network replaced: names by
   position, categories as text, "?" as missing, whole numbers as integers, classes in our spelling.
2. A table of another width is refused; so is every failure to fetch, in one sentence that says what
   to do, without the retries' warnings.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import _openml as scikit_learn_openml

from paper.datasets import loading as openml
from paper.datasets.loading import canonical_table, fetch_source
from tests.paper.datasets.small import SHA256, small_info, small_source
from varjepa.errors import InputError

INFO = small_info(classes={"1": "no", "2": "yes"})

ARFF = """@relation small
@attribute V1 numeric
@attribute V2 {red, blue}
@attribute V3 {1, 2, 10}
@attribute V4 numeric
@attribute V5 {0, 1, 255}
@attribute Class {1, 2}
@data
7,blue,10,3,1,1
7,blue,1,0.000001,1,1
1,red,2,2,1,2
0,red,2,0,0,1
-5,red,2,0.5,0,1
300,?,1,-1.25,255,2
"""


class Response(io.BytesIO):
    """What urlopen returns, as far as scikit-learn looks at it."""

    def info(self) -> dict[str, str]:
        return {}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """OpenML's answers for the small table; returns the list of requests."""
    nominal = {"V1": False, "V2": True, "V3": True, "V4": False, "V5": True, "Class": True}
    features = [
        {
            "index": str(j),
            "name": name,
            "data_type": "nominal" if is_nominal else "numeric",
            "is_target": str(name == "Class").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(int(name == "V2")),
        }
        for j, (name, is_nominal) in enumerate(nominal.items())
    ]
    description = {
        "id": "99",
        "name": "small",
        "version": "1",
        "status": "active",
        "description": "six rows",
        "format": "ARFF",
        "url": "http://nowhere.invalid/small.arff",
        "md5_checksum": hashlib.md5(ARFF.encode()).hexdigest(),
    }
    qualities = {"quality": [{"name": "NumberOfInstances", "value": "6"}]}
    answers: list[tuple[str, Any]] = [
        ("/features/99", {"data_features": {"feature": features}}),
        ("/qualities/99", {"data_qualities": qualities}),
        ("/data/99", {"data_set_description": description}),
        ("/small.arff", ARFF),
    ]
    asked: list[str] = []

    def urlopen(request: Any, *_: Any, **__: Any) -> Response:
        asked.append(request.full_url)
        answer = next(a for ending, a in answers if request.full_url.endswith(ending))
        return Response((answer if isinstance(answer, str) else json.dumps(answer)).encode())

    monkeypatch.setattr(scikit_learn_openml, "urlopen", urlopen)
    return asked


def fetch(data_home: Path) -> pa.Table:
    assert INFO.openml is not None
    return fetch_source(INFO, INFO.openml, data_home)


def test_through_scikit_learns_fetcher(server: list[str], tmp_path: Path) -> None:
    table = fetch(tmp_path)
    assert table.column_names == small_source().column_names
    assert table["size"].to_pylist() == [7, 7, 1, 0, -5, 300]
    assert table["size"].type == pa.int32()
    assert table["colour"].to_pylist() == ["blue", "blue", "red", "red", "red", None]
    assert table["target"].to_pylist() == ["no", "no", "yes", "no", "no", "yes"]
    assert canonical_table(INFO, table, "there").sha256 == SHA256
    requests = len(server)
    fetch(tmp_path)
    assert len(server) == requests  # the second time from data_home


def test_another_width_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = SimpleNamespace(data=np.zeros((6, 4)), categories={}, feature_names=[], target=[])
    monkeypatch.setattr(openml, "fetch_openml", lambda **_: answer)
    with pytest.raises(InputError, match=r"OpenML 99 .*\(6, 4\), not one of 5 columns"):
        fetch(tmp_path)


@pytest.mark.parametrize(
    "failure",
    [
        URLError("no route to host"),
        TimeoutError("timed out"),
        ValueError("md5 checksum"),
        KeyError("url"),
    ],
)
def test_without_network(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(**_: Any) -> None:
        raise failure

    monkeypatch.setattr(openml, "fetch_openml", refuse)
    with pytest.raises(InputError) as caught:
        fetch(tmp_path)
    sentence = str(caught.value)
    assert "Small is not on this machine" in sentence
    assert "set VARJEPA_DATA to a folder with small.parquet" in sentence
    assert "connect to the internet" in sentence
    assert "\n" not in sentence


def test_retries_do_not_warn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def urlopen(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(scikit_learn_openml, "urlopen", urlopen)
    monkeypatch.setattr(scikit_learn_openml.time, "sleep", lambda _: None)
    with pytest.raises(InputError, match="no route to host"):  # warnings are errors here
        fetch(tmp_path)
