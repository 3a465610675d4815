# mypy: ignore-errors
"""Triton kernel: a whole transformer over short sequences, forward.

A program holds a tile of T tokens, which is as many whole sequences as fit, and takes it through
every layer: sequences never meet, so the residual stream, in float32, never leaves the program.
Attention is a T by T product in which only pairs of one sequence count; a head is a mask over
columns, which serves head dimensions that the matrix units are too wide for.

Parameters lie in one buffer in the order of ``Transformer.parameters()``. What backward reads again
goes to a tape; of a norm only the standardised rows do.
"""

from __future__ import annotations

from varjepa.networks.fused_parts import (
    add_product,
    kernel,
    normal,
    product,
    scores,
    standardise,
    tl,
)


@kernel
def forward_kernel(
    x_ptr,  # (N, D)
    y_ptr,  # (N, D)
    matrices,  # parameters as DOT
    vectors,  # the same in float32
    valid,  # (N,) or nothing
    hats,  # (2 L + 1, N, D): what each norm standardised
    inverses,  # (2 L + 1, N): one over its deviation
    projections,  # (3 L, N, D): q, k, v
    normalisers,  # (L, H, N): log Σ exp of the scores
    mixtures,  # (L, N, D): attention's answer
    hiddens,  # (L, N, FF): before GELU
    total,
    length,
    per_tile,
    layers,
    D: tl.constexpr,
    FF: tl.constexpr,
    HEADS: tl.constexpr,
    EPS: tl.constexpr,
    SCALE: tl.constexpr,
    T: tl.constexpr,
    CHUNK: tl.constexpr,
    DOT: tl.constexpr,
    MASKED: tl.constexpr,
    SAVE: tl.constexpr,
):
    """The whole transformer for one tile of sequences."""
    SIZE: tl.constexpr = 4 * D * D + 2 * D * FF + 9 * D + FF
    pos = tl.arange(0, T)
    col = tl.arange(0, D)
    unit = tl.arange(0, CHUNK)
    group = pos // length
    row = tl.program_id(0) * per_tile + pos
    inside = (pos < per_tile) & (row < total)
    at = row[:, None] * D + col[None, :]
    keep = inside[:, None]
    square = col[:, None] * D + col[None, :]
    head_of = col // (D // HEADS)
    if MASKED:  # noqa: SIM108
        seen = tl.load(valid + row, mask=inside, other=0) != 0
    else:
        seen = inside
    x = tl.load(x_ptr + at, mask=keep, other=0.0)
    for _ in range(layers):
        w_in = matrices + 2 * D
        b_in = vectors + 2 * D + 3 * D * D
        w_out = w_in + 3 * D * D + 3 * D
        b_out = b_in + 3 * D + D * D
        norm = b_out + D
        w_up = w_out + D * D + 3 * D
        b_up = norm + 2 * D + FF * D
        w_down = w_up + FF * D + FF
        b_down = b_up + FF + D * FF

        # fetched early, all at once: each fetch alone would be waited for
        w_q = tl.load(w_in + square)
        w_k = tl.load(w_in + D * D + square)
        w_v = tl.load(w_in + 2 * D * D + square)
        out = tl.load(w_out + square)
        hat, inverse = standardise(x, D, EPS)
        n = hat * tl.load(vectors + col)[None, :] + tl.load(vectors + D + col)[None, :]
        n = n.to(DOT)
        q = product(n, tl.trans(w_q), DOT) + tl.load(b_in + col)[None, :]
        k = product(n, tl.trans(w_k), DOT) + tl.load(b_in + D + col)[None, :]
        v = product(n, tl.trans(w_v), DOT) + tl.load(b_in + 2 * D + col)[None, :]
        q, k, v = q.to(DOT), k.to(DOT), v.to(DOT)
        if SAVE:
            tl.store(hats + at, hat.to(DOT), mask=keep)
            tl.store(inverses + row, inverse, mask=inside)
            tl.store(projections + at, q, mask=keep)
            tl.store(projections + total * D + at, k, mask=keep)
            tl.store(projections + 2 * total * D + at, v, mask=keep)

        k_t = tl.trans(k)
        mixed = tl.zeros((T, D), DOT)
        for head in tl.static_range(HEADS):  # a head's columns are then known when compiling
            mine = (head_of == head)[None, :]
            s = scores(tl.where(mine, q, 0.0), k_t, group, seen, SCALE, MASKED, DOT)
            highest = tl.max(s, 1)
            p = tl.exp(s - highest[:, None])
            mass = tl.sum(p, 1)
            answer = product(p, v, DOT) * (1.0 / mass)[:, None]
            mixed = tl.where(mine, answer.to(DOT), mixed)
            if SAVE:
                tl.store(normalisers + head * total + row, highest + tl.log(mass), mask=inside)
        x += product(mixed, tl.trans(out), DOT)
        x += tl.load(b_out + col)[None, :]

        hat, inverse = standardise(x, D, EPS)
        n = hat * tl.load(norm + col)[None, :] + tl.load(norm + D + col)[None, :]
        n = n.to(DOT)
        if SAVE:
            tl.store(mixtures + at, mixed, mask=keep)
            tl.store(hats + total * D + at, hat.to(DOT), mask=keep)
            tl.store(inverses + total + row, inverse, mask=inside)
        x += tl.load(b_down + col)[None, :]
        for start in range(0, FF, CHUNK):
            up = tl.load(w_up + (start + unit)[:, None] * D + col[None, :])
            down = tl.load(w_down + col[:, None] * FF + (start + unit)[None, :])
            h = product(n, tl.trans(up), DOT) + tl.load(b_up + start + unit)[None, :]
            if SAVE:
                at_hidden = row[:, None] * FF + (start + unit)[None, :]
                tl.store(hiddens + at_hidden, h.to(DOT), mask=keep)
            below, _bell = normal(h)
            x = add_product(x, h * below, tl.trans(down), DOT)

        matrices += SIZE
        vectors += SIZE
        hats += 2 * total * D
        inverses += 2 * total
        projections += 3 * total * D
        normalisers += HEADS * total
        mixtures += total * D
        hiddens += total * FF
    hat, inverse = standardise(x, D, EPS)
    if SAVE:
        tl.store(hats + at, hat.to(DOT), mask=keep)
        tl.store(inverses + row, inverse, mask=inside)
    y = hat * tl.load(vectors + col)[None, :] + tl.load(vectors + D + col)[None, :]
    tl.store(y_ptr + at, y, mask=keep)
