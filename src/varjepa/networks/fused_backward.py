# mypy: ignore-errors
"""Triton kernel: the gradient through a whole transformer over short sequences.

A program takes the gradient of its tile from the last norm down to the tokens, as ``fused_forward``
took the tile up. Weight gradients wait: the operands of their products go to a tape.
"""

from __future__ import annotations

from varjepa.networks.fused_parts import add_product, jit, kernel, normal, product, scores, tl


@jit
def _standardise_backward(dn, norm, hats, inverses, D: tl.constexpr, keep, inside):
    """The gradient before a norm whose scale lies at ``norm``, given the one behind it."""
    hat = tl.load(hats, mask=keep, other=0.0).to(tl.float32)
    inverse = tl.load(inverses, mask=inside, other=0.0)
    dhat = dn * tl.load(norm)[None, :]
    along = (tl.sum(dhat * hat, 1) / D)[:, None]
    mean = (tl.sum(dhat, 1) / D)[:, None]
    return (dhat - mean - hat * along) * inverse[:, None]


@kernel
def backward_kernel(
    dy_ptr,  # (N, D)
    dx_ptr,  # (N, D)
    matrices,
    vectors,
    valid,
    hats,
    inverses,
    projections,
    normalisers,
    hiddens,
    douts,  # (2 L, N, D): gradients at the outputs of attention and of mlp
    dprojections,  # (3 L, N, D)
    dhiddens,  # (L, N, FF)
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
):
    """The gradient of one tile, from the last norm down to the tokens."""
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

    matrices += layers * SIZE
    vectors += layers * SIZE
    hats += 2 * layers * total * D
    inverses += 2 * layers * total
    projections += 3 * layers * total * D
    normalisers += layers * HEADS * total
    hiddens += layers * total * FF
    douts += 2 * layers * total * D
    dprojections += 3 * layers * total * D
    dhiddens += layers * total * FF
    dy = tl.load(dy_ptr + at, mask=keep, other=0.0)
    dy = _standardise_backward(dy, vectors + col, hats + at, inverses + row, D, keep, inside)

    for _ in range(layers):
        matrices -= SIZE
        vectors -= SIZE
        hats -= 2 * total * D
        inverses -= 2 * total
        projections -= 3 * total * D
        normalisers -= HEADS * total
        hiddens -= total * FF
        douts -= 2 * total * D
        dprojections -= 3 * total * D
        dhiddens -= total * FF
        w_in = matrices + 2 * D
        w_out = w_in + 3 * D * D + 3 * D
        norm = vectors + 6 * D + 4 * D * D
        w_up = w_out + D * D + 3 * D
        w_down = w_up + FF * D + FF

        # fetched early, all at once: each fetch alone would be waited for
        q = tl.load(projections + at, mask=keep, other=0.0)
        k = tl.load(projections + total * D + at, mask=keep, other=0.0)
        v_t = tl.trans(tl.load(projections + 2 * total * D + at, mask=keep, other=0.0))
        out = tl.load(w_out + square)
        w_q = tl.load(w_in + square)
        w_k = tl.load(w_in + D * D + square)
        w_v = tl.load(w_in + 2 * D * D + square)

        # mlp
        dy_dot = dy.to(DOT)
        tl.store(douts + total * D + at, dy_dot, mask=keep)
        dn = tl.zeros((T, D), tl.float32)
        for start in range(0, FF, CHUNK):
            at_hidden = row[:, None] * FF + (start + unit)[None, :]
            h = tl.load(hiddens + at_hidden, mask=keep, other=0.0)
            down = tl.load(w_down + col[:, None] * FF + (start + unit)[None, :])
            up = tl.load(w_up + (start + unit)[:, None] * D + col[None, :])
            da = product(dy_dot, down, DOT)
            h = h.to(tl.float32)
            below, bell = normal(h)
            dh = (da * (below + 0.3989422804014327 * h * bell)).to(DOT)
            tl.store(dhiddens + at_hidden, dh, mask=keep)
            dn = add_product(dn, dh, up, DOT)
        dy += _standardise_backward(
            dn, norm + col, hats + total * D + at, inverses + total + row, D, keep, inside
        )

        # attention, a head at a time; each product serves its head's columns alone
        dy_dot = dy.to(DOT)
        tl.store(douts + at, dy_dot, mask=keep)
        dmixed = product(dy_dot, out, DOT).to(DOT)
        dq = tl.zeros((T, D), DOT)
        dk = tl.zeros((T, D), DOT)
        dv = tl.zeros((T, D), DOT)
        k_t = tl.trans(k)
        for head in tl.static_range(HEADS):
            mine = (head_of == head)[None, :]
            log_mass = tl.load(normalisers + head * total + row, mask=inside, other=0.0)
            s = scores(tl.where(mine, q, 0.0), k_t, group, seen, SCALE, MASKED, DOT)
            p = tl.exp(s - log_mass[:, None])
            dv = tl.where(mine, product(tl.trans(p.to(DOT)), dmixed, DOT).to(DOT), dv)
            dp = product(tl.where(mine, dmixed, 0.0), v_t, DOT)
            ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * SCALE).to(DOT)
            dq = tl.where(mine, product(ds, k, DOT).to(DOT), dq)
            dk = tl.where(mine, product(tl.trans(ds), q, DOT).to(DOT), dk)
        tl.store(dprojections + at, dq, mask=keep)
        tl.store(dprojections + total * D + at, dk, mask=keep)
        tl.store(dprojections + 2 * total * D + at, dv, mask=keep)
        dn = product(dq, w_q, DOT)
        dn = add_product(dn, dk, w_k, DOT)
        dn = add_product(dn, dv, w_v, DOT)
        dy += _standardise_backward(dn, vectors + col, hats + at, inverses + row, D, keep, inside)
    tl.store(dx_ptr + at, dy, mask=keep)
