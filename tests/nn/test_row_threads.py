"""Claims about slices of rows on threads.

1. Slices cover every row once, in order, and hold about the same number of tokens for any table.
2. Their summed gradients are those of the whole batch, and the same to the last bit for any number
   of cores; they add to gradients already there, and a parameter out of use stays without.
3. Results come in order; an error in a thread arrives where the work was asked for.
4. The number of threads torch uses elsewhere is left as it was, also for threads started later.
"""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from varjepa.nn.row_threads import SLICE_TOKENS, RowThreads, slices_of


@pytest.mark.parametrize(("rows", "tokens"), [(512, 20), (1, 20), (7, 5000), (300, 1)])
def test_slices_cover_the_rows(rows: int, tokens: int) -> None:
    slices = slices_of(rows, tokens)
    assert [i for here in slices for i in range(here.start, here.stop)] == list(range(rows))
    assert all((here.stop - here.start) * tokens <= max(SLICE_TOKENS, tokens) for here in slices)
    assert len({here.stop - here.start for here in slices[:-1]}) <= 1


def test_two_cores_get_the_same_amount() -> None:
    sizes = [here.stop - here.start for here in slices_of(512, 14)]
    assert sizes == [128] * 4


def gradients(cores: int, slices: list[slice]) -> tuple[list[torch.Tensor], nn.Module]:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)), torch.randn(500, 8)
    with RowThreads(cores) as threads:
        threads.backward(lambda here: (net(x[here]).square().sum(), None), slices, net.parameters())
    return [p.grad for p in net.parameters() if p.grad is not None], net


def test_gradients_do_not_depend_on_the_cores() -> None:
    slices = slices_of(500, 40)
    one, _ = gradients(1, slices)
    for cores in (2, 3):
        more, _ = gradients(cores, slices)
        assert all(torch.equal(a, b) for a, b in zip(one, more, strict=True))
    whole, _ = gradients(1, [slice(0, 500)])
    for a, b in zip(one, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_gradients_add_up_and_stay_away_where_there_are_none() -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    used.grad = torch.full((3,), 5.0)
    with RowThreads(2) as threads:
        kept = threads.backward(
            lambda here: ((used * (here.stop - here.start)).sum(), here.start),
            [slice(0, 4), slice(4, 8), slice(8, 10)],
            [used, unused],
        )
    assert used.grad.tolist() == [15.0] * 3
    assert unused.grad is None
    assert kept == [0, 4, 8]


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_arrives(cores: int) -> None:
    def work(here: slice) -> int:
        if here.start == 4:
            raise ValueError("slice 4")
        return here.start

    with RowThreads(cores) as threads, pytest.raises(ValueError, match="slice 4"):
        list(threads.map(work, [slice(0, 4), slice(4, 8), slice(8, 10)]))


def test_other_threads_keep_theirs() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        later: list[int] = []
        with RowThreads(2) as threads:
            inside = list(
                threads.map(lambda _: torch.get_num_threads(), slices_of(4, SLICE_TOKENS))
            )
            other = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
            other.start()
            other.join()
        assert inside == [1, 1, 1, 1]
        assert later == [3]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
