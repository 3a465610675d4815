# mypy: ignore-errors
"""Triton kernels: all weight gradients of a transformer from the tapes of its two passes.

``gradient_kernel`` takes all layers at once, split over tokens, and ``finish_kernel`` adds the
splits in a fixed order, so a result does not depend on scheduling. A norm's own gradients, and its
part in those of the product behind it, follow from the sums of that product. Gradients lie in one
buffer in the order of ``Transformer.parameters()``.
"""

from __future__ import annotations

from varjepa.networks.fused_parts import add_product, jit, kernel, normal, tl


@jit
def _gram(
    a_ptr,  # (N, WIDTH), of which the columns below are taken
    b_ptr,  # (N, D)
    out,
    a_sums,
    b_sums,
    first,
    last,
    a_at,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    STEP: tl.constexpr,
    DOT: tl.constexpr,
    GELU: tl.constexpr,
):
    """Aᵀ B over some tokens and the column sums of A; or Bᵀ GELU(A) and the column sums of B."""
    pos = tl.arange(0, STEP)
    unit = tl.arange(0, ROWS)
    col = tl.arange(0, D)
    product = tl.zeros((D, ROWS) if GELU else (ROWS, D), tl.float32)
    sums = tl.zeros((STEP, D if GELU else ROWS), tl.float32)
    for start in range(first, last, STEP):
        row = start + pos
        keep = (row < last)[:, None]
        a = tl.load(a_ptr + row[:, None] * WIDTH + (a_at + unit)[None, :], mask=keep, other=0.0)
        b = tl.load(b_ptr + row[:, None] * D + col[None, :], mask=keep, other=0.0)
        if GELU:
            sums += b.to(tl.float32)
            h = a.to(tl.float32)
            below, _bell = normal(h)
            product = add_product(product, tl.trans(b), h * below, DOT)
        else:
            sums += a.to(tl.float32)
            product = add_product(product, tl.trans(a), b, DOT)
    if GELU:
        tl.store(out + col[:, None] * WIDTH + (a_at + unit)[None, :], product)
        if a_at == 0:
            tl.store(b_sums + col, tl.sum(sums, 0))
    else:
        tl.store(out + (a_at + unit)[:, None] * D + col[None, :], product)
        tl.store(a_sums + a_at + unit, tl.sum(sums, 0))


@kernel
def gradient_kernel(
    out,  # (splits, parameters)
    dy_ptr,
    hats,
    mixtures,
    hiddens,
    douts,
    dprojections,
    dhiddens,
    total,
    per_split,
    layers,
    D: tl.constexpr,
    FF: tl.constexpr,
    CHUNK: tl.constexpr,
    STEP: tl.constexpr,
    DOT: tl.constexpr,
):
    """One block of one layer's weight gradient over one split of the tokens."""
    SIZE: tl.constexpr = 4 * D * D + 2 * D * FF + 9 * D + FF
    PIECES: tl.constexpr = FF // CHUNK
    task = tl.program_id(0)
    layer = tl.program_id(1)
    first = tl.program_id(2) * per_split
    last = tl.minimum(first + per_split, total)
    out += tl.program_id(2) * (layers * SIZE + 2 * D) + layer * SIZE
    hats += 2 * layer * total * D
    douts += 2 * layer * total * D
    if task < 3:
        w_in = out + 2 * D + task * D * D
        b_in = out + 2 * D + 3 * D * D + task * D
        dprojections += (3 * layer + task) * total * D
        _gram(dprojections, hats, w_in, b_in, b_in, first, last, 0, D, D, D, STEP, DOT, False)
    elif task == 3:
        w_out = out + 5 * D + 3 * D * D
        b_out = w_out + D * D
        mixtures += layer * total * D
        _gram(douts, mixtures, w_out, b_out, b_out, first, last, 0, D, D, D, STEP, DOT, False)
    elif task < 4 + PIECES:
        w_up = out + 8 * D + 4 * D * D
        b_up = w_up + FF * D
        a_at = (task - 4) * CHUNK
        dhiddens += layer * total * FF
        hats += total * D
        _gram(dhiddens, hats, w_up, b_up, b_up, first, last, a_at, FF, CHUNK, D, STEP, DOT, False)
    elif task < 4 + 2 * PIECES:
        w_down = out + 8 * D + 4 * D * D + FF * D + FF
        b_down = w_down + FF * D
        a_at = (task - 4 - PIECES) * CHUNK
        hiddens += layer * total * FF
        douts += total * D
        _gram(
            hiddens, douts, w_down, b_down, b_down, first, last, a_at, FF, CHUNK, D, STEP, DOT, True
        )
    elif layer == 0:  # the last norm
        out += layers * SIZE
        hats += 2 * layers * total * D
        col = tl.arange(0, D)
        dscale = tl.zeros((STEP, D), tl.float32)
        dshift = tl.zeros((STEP, D), tl.float32)
        for start in range(first, last, STEP):
            row = (start + tl.arange(0, STEP))[:, None]
            at = row * D + col[None, :]
            dy = tl.load(dy_ptr + at, mask=row < last, other=0.0)
            dscale += dy * tl.load(hats + at, mask=row < last, other=0.0).to(tl.float32)
            dshift += dy
        tl.store(out + col, tl.sum(dscale, 0))
        tl.store(out + D + col, tl.sum(dshift, 0))


@jit
def _finish_norm(
    partials,
    out,
    vectors,
    norm,
    weight,
    bias,
    splits,
    size,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SLAB: tl.constexpr,
):
    """Gradients of y = W (scale · hat + shift) + b from Σ dyᵀ hat and Σ dy, a slab of columns."""
    col = tl.program_id(2) * SLAB + tl.arange(0, SLAB)
    scale = tl.load(vectors + norm + col)[None, :]
    shift = tl.load(vectors + norm + D + col)[None, :]
    dscale = tl.zeros((SLAB,), tl.float32)
    dshift = tl.zeros((SLAB,), tl.float32)
    for start in range(0, ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        mine = row < ROWS
        keep = mine[:, None]
        at = weight + row[:, None] * D + col[None, :]
        g = tl.zeros((BLOCK, SLAB), tl.float32)
        db = tl.zeros((BLOCK,), tl.float32)
        for split in range(splits):
            g += tl.load(partials + split * size + at, mask=keep, other=0.0)
            db += tl.load(partials + split * size + bias + row, mask=mine, other=0.0)
        w = tl.load(vectors + at, mask=keep, other=0.0)
        dscale += tl.sum(w * g, 0)
        dshift += tl.sum(w * db[:, None], 0)
        tl.store(out + at, g * scale + db[:, None] * shift, mask=keep)
        tl.store(out + bias + row, db, mask=mine)  # the same from every slab
    tl.store(out + norm + col, dscale)
    tl.store(out + norm + D + col, dshift)


@jit
def _finish_plain(partials, out, first, last, splits, size, WIDTH: tl.constexpr):
    for start in range(first + tl.program_id(2) * WIDTH, last, tl.num_programs(2) * WIDTH):
        at = start + tl.arange(0, WIDTH)
        keep = at < last
        g = tl.zeros((WIDTH,), tl.float32)
        for split in range(splits):
            g += tl.load(partials + split * size + at, mask=keep, other=0.0)
        tl.store(out + at, g, mask=keep)


@kernel
def finish_kernel(
    partials,  # (splits, parameters)
    out,  # (parameters,)
    vectors,
    splits,
    layers,
    D: tl.constexpr,
    FF: tl.constexpr,
    BLOCK: tl.constexpr,
    SLAB: tl.constexpr,
):
    """Sum the splits, always in the same order, and work the norms in."""
    SIZE: tl.constexpr = 4 * D * D + 2 * D * FF + 9 * D + FF
    IN_BIAS: tl.constexpr = 2 * D + 3 * D * D
    OUT: tl.constexpr = IN_BIAS + 3 * D
    NORM: tl.constexpr = OUT + D * D + D
    UP: tl.constexpr = NORM + 2 * D
    UP_BIAS: tl.constexpr = UP + FF * D
    WIDTH: tl.constexpr = BLOCK * SLAB
    size = layers * SIZE + 2 * D
    part = tl.program_id(0)
    layer = tl.program_id(1)
    partials += layer * SIZE
    out += layer * SIZE
    vectors += layer * SIZE
    if layer == layers:  # the last norm
        if part == 0:
            _finish_plain(partials, out, 0, 2 * D, splits, size, 2 * D)
    elif part == 0:
        _finish_norm(partials, out, vectors, 0, 2 * D, IN_BIAS, splits, size, 3 * D, D, BLOCK, SLAB)
    elif part == 1:
        _finish_plain(partials, out, OUT, NORM, splits, size, WIDTH)
    elif part == 2:
        _finish_norm(partials, out, vectors, NORM, UP, UP_BIAS, splits, size, FF, D, BLOCK, SLAB)
    else:
        _finish_plain(partials, out, UP_BIAS + FF, SIZE, splits, size, WIDTH)
