"""Triton kernels of a whole transformer: forward, backward and weight gradients.

Products take DOT operands and sum in float32. Parameters lie in one buffer in the order of
``Transformer.parameters()``, and so do their gradients. Without Triton the module still imports;
nothing in it can then be called.
"""

# mypy: ignore-errors

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


# --- Forward.
#
# A program holds a tile of T tokens, which is as many whole sequences as fit, and takes it through
# every layer: sequences never meet, so the residual stream, in float32, never leaves the program.
# Attention is a T by T product in which only pairs of one sequence count; a head is a mask over
# columns, which serves head dimensions that the matrix units are too wide for. What backward reads
# again goes to a tape; of a norm only the standardised rows do.


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


# --- Backward.
#
# A program takes the gradient of its tile from the last norm down to the tokens. The operands of
# the weight gradients' products go to a tape.


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


# --- Weight gradients, from the tapes of both passes.
#
# ``gradient_kernel`` takes all layers at once, split over tokens, and ``finish_kernel`` adds the
# splits in a fixed order, so a result does not depend on scheduling. A norm's own gradients, and
# its part in those of the product behind it, follow from the sums of that product.


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
