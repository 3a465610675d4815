# mypy: ignore-errors
"""What the fused transformer's Triton kernels share.

Products take DOT operands and sum in float32. Without Triton the module still imports; nothing in
it can then be called.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl

    jit = triton.jit
    # sizes change with every batch; compiling for each would cost more than it wins
    kernel = triton.jit(
        do_not_specialize=("total", "length", "per_tile", "per_split", "splits", "layers")
    )
except ImportError:  # the rest of the package works without; can_fuse says no

    def jit(function):
        return function

    kernel = jit
    tl = None


def element_type(dtype):
    """Triton's name for a torch dtype."""
    return getattr(tl, str(dtype).removeprefix("torch."))


@jit
def product(a, b, DOT: tl.constexpr):
    return tl.dot(a.to(DOT), b.to(DOT), input_precision="ieee")


@jit
def add_product(total, a, b, DOT: tl.constexpr):
    return tl.dot(a.to(DOT), b.to(DOT), acc=total, input_precision="ieee")


@jit
def standardise(x, D: tl.constexpr, EPS: tl.constexpr):
    """A row less its mean, over its standard deviation; and one over that deviation."""
    centred = x - (tl.sum(x, 1) / D)[:, None]
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + EPS)
    return centred * inverse[:, None], inverse


@jit
def scores(q, k_t, group, seen, SCALE: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr):
    """Scaled scores; a key that is not valid gets a very low one, one of another sequence −∞."""
    s = product(q, k_t, DOT) * SCALE
    if MASKED:
        s = tl.where(seen[None, :], s, -1e30)
    return tl.where(group[:, None] == group[None, :], s, float("-inf"))


@jit
def normal(h):
    """Φ(h) and exp(−h²/2), the one from the other.

    Abramowitz and Stegun 7.1.26, within 7.5e-8 of Φ: as exact as float32, at half erf's price.
    """
    bell = tl.exp(-0.5 * h * h)
    t = 1.0 / (1.0 + 0.23164189 * tl.abs(h))  # 0.3275911 / √2
    tail = 0.5307027145 * t - 0.7265760135
    tail = tail * t + 0.7107068705
    tail = tail * t - 0.142248368
    tail = (tail * t + 0.127414796) * t * bell
    return tl.where(h > 0.0, 1.0 - tail, tail), bell
