"""Claims: code may be redesigned, and no number of a model changes.

1. Weights, losses, codecs, embeddings, uncertainties, imputed and drawn tables, metrics and the
   simulation study are what they were when ``digests.json`` was written: to the last bit where the
   arithmetic is the same (torch, numpy, Python, system, instructions), else up to rounding. The
   kernels that numpy's BLAS chooses move last bits of what numpy computes, and of nothing else.
2. With the first version's settings and with today's: a training that was stopped and resumed is
   the training that was not, to the last bit; a model that was saved and loaded embeds as before; a
   table with more rows changes no row's embedding.
3. This test can fail: one last bit is seen where bits count, a small change anywhere else.

``runs.py`` computes all this. A test that fails here says that numbers have changed: the digests
are written anew only where that was the purpose.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from tests.digests import runs

Digests = dict[str, dict[str, Any]]

RECORDED: dict[str, Any] = json.loads(runs.FILE.read_text(encoding="utf-8"))
NOT_ARITHMETIC = ("varjepa", "threads")
"""The package's version moves no bit, and the runs have one thread everywhere."""
BY_NUMPY = ("generators/", "metrics/", "selective/")
"""Runs without a network, or behind one; all others are torch's, which has a BLAS of its own."""


def other_arithmetic(recorded: dict[str, Any] = RECORDED) -> dict[str, tuple[Any, Any]]:
    """In what this machine is not the recorded one: then and now."""
    then, now = recorded["environment"], runs.arithmetic()
    names = [name for name in then | now if name not in NOT_ARITHMETIC]
    return {n: (then.get(n), now.get(n)) for n in names if then.get(n) != now.get(n)}


def to_the_bit(name: str, others: Collection[str]) -> bool:
    """Whether every bit of a run is the recorded one, on a machine that differs in ``others``."""
    return not others or (set(others) == {"blas"} and not name.startswith(BY_NUMPY))


def different(then: Digests, now: Digests, *, others: Collection[str]) -> list[str]:
    """Names of what is gone, new or not the same, each with the reason."""
    found = [f"{name}: gone" for name in then if name not in now]
    found += [f"{name}: new" for name in now if name not in then]
    for name in then.keys() & now.keys():
        old, new = then[name], now[name]
        of_bits = to_the_bit(name, others) or not old["dtype"].startswith("float")
        for part in ("shape", "dtype", "sha256") if of_bits else ("shape", "dtype"):
            if old[part] != new[part]:
                found.append(f"{name}: {part} {old[part]} → {new[part]}; {_summaries(old, new)}")
                break
        else:
            if not of_bits and not _close(old["summary"], new["summary"]):
                found.append(f"{name}: {_summaries(old, new)}")
    return sorted(found)


def _close(old: list[float], new: list[float]) -> bool:
    return len(old) == len(new) and bool(np.allclose(new, old, rtol=1e-3, atol=1e-5))


def _summaries(old: dict[str, Any], new: dict[str, Any]) -> str:
    return f"mean, std, min, max {old['summary']} → {new['summary']}"


# --- 1 and 2, in one test: two might go to two processes, and each would compute everything


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return runs.all_runs()


def test_no_number_has_changed(found: dict[str, Any]) -> None:
    now = {name: runs.digest(value) for name, value in found.items()}
    assert_runs_agree(now)
    one, many = found["var_t_jepa/transform/flat"], found["var_t_jepa/blocks/flat"]
    np.testing.assert_array_equal(many, np.tile(one, (7, 1)))
    others = other_arithmetic()
    wrong = different(RECORDED["digests"], now, others=others)
    compared = f"up to rounding where it counts that {others}" if others else "to the last bit"
    where = f"recorded on {RECORDED['processor']}"
    listed = "\n".join(wrong)
    assert not wrong, f"{len(wrong)} of {len(now)} differ, {compared}, {where}:\n{listed}"


def assert_runs_agree(now: Digests) -> None:
    def same(one: str, other: str) -> None:
        assert now[one] == now[other], f"{one} is not {other}"

    resumed = [name for name in now if name.startswith("resumed/")]
    assert {"resumed/weights", "resumed/history", "resumed/transform/flat"} <= set(resumed)
    for name in resumed:
        same(name, name.replace("resumed/", "var_t_jepa/"))
    resumed = [name for name in now if name.startswith("today/resumed/")]
    assert {"today/resumed/weights", "today/resumed/impute/a"} <= set(resumed)
    for name in resumed:
        same(name, name.replace("resumed/", "plain/"))
    same("today/plain/loaded", "today/plain/transform/flat")
    for output in ("flat", "mean", "cls"):
        same(f"var_t_jepa/loaded/transform/{output}", f"var_t_jepa/transform/{output}")
    for name in ("plain", "labelled"):
        same(f"t_jepa/{name}/loaded", f"t_jepa/{name}/transform/flat")


def test_bits_are_compared() -> None:
    """Skipped where another arithmetic leaves only a comparison up to rounding."""
    others = other_arithmetic()
    if not to_the_bit("var_t_jepa/weights", others):
        pytest.skip(f"digests compared up to rounding only: {others}")


# --- 3


def test_a_last_bit_is_seen() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    then = {"a": runs.digest(values), "text": runs.digest("ab"), "n": runs.digest(np.arange(4))}
    assert not different(then, dict(then), others=())
    values[2, 1] = np.nextafter(values[2, 1], np.float32(9))
    bit = then | {"a": runs.digest(values)}
    assert [line.split(":")[0] for line in different(then, bit, others=())] == ["a"]
    assert not different(then, bit, others=("torch",))


def test_other_kernels_of_blas_excuse_what_numpy_computes_and_nothing_else() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    names = ("metrics/a", "selective/a", "generators/a", "var_t_jepa/a", "today/plain/a")
    then = dict.fromkeys(names, runs.digest(values))
    now = dict.fromkeys(names, runs.digest(np.nextafter(values, 9)))
    found = different(then, now, others=("blas",))
    assert [line.split(":")[0] for line in found] == ["today/plain/a", "var_t_jepa/a"]
    assert not different(then, now, others=("blas", "torch"))


@pytest.mark.parametrize("others", [(), ("blas",), ("torch", "blas")])
def test_larger_changes_are_seen_everywhere(others: tuple[str, ...]) -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    then = {"a": runs.digest(values), "text": runs.digest("ab"), "n": runs.digest(np.arange(4))}
    changes = {
        "a": [values * 1.01, values + 0.01, values.T, values.astype(np.float32), values * np.nan],
        "text": ["ac"],
        "n": [np.array([0, 2, 1, 3]), np.arange(4.0)],
    }
    for name, changed in changes.items():
        for other in changed:
            now = then | {name: runs.digest(other)}
            assert [line.split(":")[0] for line in different(then, now, others=others)] == [name]
    assert different(
        then, {"a": then["a"], "text": then["text"], "m": then["n"]}, others=others
    ) == [
        "m: new",
        "n: gone",
    ]
