"""Ways to compute a default model's training step on one device, compared.

Every way is measured in a fresh process with empty compiler caches: seconds until its first steps
are done (cold), then milliseconds per step (warm), over the mask sizes of a training. A whole fit
of ``FIT_STEPS`` steps is estimated from both. Then the same way embeds rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import torch

from benchmarks.fits import Emit, Row, dependent_table, in_process
from benchmarks.measures import peak_resident_mb, synchronise
from varjepa import VarTJEPA
from varjepa.environment import describe_environment
from varjepa.models.inference import embed_rows
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.nn.row_threads import RowThreads, map_blocks
from varjepa.nn.transformer import Block, reference_only
from varjepa.settings import Architecture, Objective, Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.cuda_graphs import CapturedStepper, PaddedStepper
from varjepa.training.losses import VarTJepaLoss
from varjepa.training.step import Stepper

FIT_STEPS = 2400
"""steps of a default fit, at most"""

USED_ROWS, USED_CELLS = 4096, 1 << 17
"""rows that are embedded, and their cells, at most"""


@dataclass(frozen=True, slots=True)
class Path:
    """A way to compute a step."""

    has_kernels: bool = False
    """whether fast paths are taken; on short rows only a GPU has one, Triton's kernels"""
    compiled: str | None = None
    """mode of torch.compile, for every block of the transformers"""
    stepper: type[Stepper] = Stepper
    threads: int | None = None
    """on a CPU: rows over so many threads; None: every operation over all cores"""


CPU_PATHS = {
    "rows over cores": Path(has_kernels=True, threads=2),
    "one thread": Path(has_kernels=True, threads=1),
    "torch's own threads": Path(has_kernels=True),
    "compiled, one thread": Path(compiled="default", threads=1),
    "compiled with autotuning, one thread": Path(compiled="max-autotune-no-cudagraphs", threads=1),
}
GPU_PATHS = {
    "Triton kernels, recorded": Path(has_kernels=True, stepper=CapturedStepper),
    "plain torch, recorded": Path(stepper=CapturedStepper),
    "compiled, recorded": Path(compiled="default", stepper=CapturedStepper),
    "compiled with autotuning, recorded": Path(
        compiled="max-autotune-no-cudagraphs", stepper=CapturedStepper
    ),
    "compiled with reduced overhead": Path(compiled="reduce-overhead", stepper=PaddedStepper),
    "Triton kernels": Path(has_kernels=True),
    "plain torch": Path(),
    "compiled": Path(compiled="default"),
}
"""the default model's kernels need a width of 16, 32 or 64; at 128 they are plain torch"""


@dataclass(frozen=True, slots=True)
class PathShape:
    """A default model on a table; ``depth`` is that of the encoders."""

    d: int
    batch: int
    columns: int
    depth: int = 1


SHAPES = (
    PathShape(128, 40, 8),
    PathShape(64, 40, 8),
    PathShape(128, 256, 15),
    PathShape(64, 256, 15),
    PathShape(64, 512, 15, depth=2),
    PathShape(128, 256, 100),
)

WIDE_SHAPES = tuple(PathShape(128, 4, columns) for columns in (125, 250, 500, 1000, 2000))
"""of few rows: memory grows with the rows of a step, and these with the columns"""


@contextmanager
def stepper_of(path: Path, shape: PathShape, device: str) -> Iterator[Stepper]:
    """A training that computes in this way, while this is open."""
    frame = dependent_table(8 * shape.batch, shape.columns)
    small = {"architecture__d": 16, "architecture__predictor_width": 16, "training__max_steps": 1}
    encoded = VarTJEPA(random_state=0, device="cpu").set_params(**small).fit(frame)
    settings = Architecture(d=shape.d, predictor_width=shape.d, depth=shape.depth)
    model = VarTJepa(VarTJEPA.table_shape(encoded.codec_), settings).to(device)
    rows = encoded.encode(frame).to(torch.device(device))
    training = Training(batch_size=shape.batch, epochs=1000, validate_every=1)
    with ExitStack() as stack:
        if not path.has_kernels:
            stack.enter_context(reference_only())
        if path.compiled is not None:
            for module in model.modules():
                if isinstance(module, Block):
                    module.compile(mode=path.compiled, dynamic=True)
        loss = VarTJepaLoss(model, Objective())
        stepper = stack.enter_context(path.stepper(loss, rows, training, seed=0))
        if device == "cpu":
            if stepper.threads is not None:
                stepper.threads.close()
            stepper.threads = None if path.threads is None else RowThreads(path.threads)
        stepper.begin_epoch()
        yield stepper


def take_steps(stepper: Stepper, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        if stepper.epoch_is_over:
            stepper.begin_epoch()
        stepper.step()
    synchronise(stepper.device.type)
    return time.perf_counter() - start


def rows_per_s(use: Callable[[VarTJepa, EncodedTable], object], stepper: Stepper) -> float:
    """Rows per second of a use of the model, on blocks of rows; the better of two passes."""
    model, rows = stepper.loss.model, stepper.rows
    assert isinstance(model, VarTJepa)
    model.eval()
    count = min(USED_ROWS, USED_CELLS // model.shape.features)
    several = rows.take(torch.arange(count, device=stepper.device) % len(rows))
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.no_grad():
            for _ in map_blocks(lambda block: use(model, block), several):
                pass
        synchronise(stepper.device.type)
        seconds.append(time.perf_counter() - start)
    return round(count / min(seconds), 1)


def measure_path(emit: Emit, name: str, shape: PathShape, device: str, steps: int) -> None:
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    path = (CPU_PATHS if device == "cpu" else GPU_PATHS)[name]
    with stepper_of(path, shape, device) as stepper:
        before = peak_resident_mb()
        first = take_steps(stepper, steps)  # every mask size comes at least once
        processor = time.process_time()
        warm = take_steps(stepper, steps) / steps
        processor = (time.process_time() - processor) / steps
        if path.threads is not None:
            torch.set_num_threads(path.threads)
        raised = peak_resident_mb() - before
        embedded = rows_per_s(embed_rows, stepper)
    cold = max(0.0, first - steps * warm)
    emit({
        "cold_s": round(cold, 2), "step_ms": round(1e3 * warm, 3),
        "processor_ms": round(1e3 * processor, 3), "fit_s": round(cold + FIT_STEPS * warm, 2),
        "embed_rows_per_s": embedded, "step_peak_mb": round(raised, 1),
    })  # fmt: skip


def bench_paths(
    device: str,
    steps: int = 64,
    shapes: Sequence[PathShape] = SHAPES,
    names: Sequence[str] | None = None,
    limit: float | None = None,
    rows: list[Row] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Measure what ``rows`` lacks; a way that fails or takes over ``limit`` seconds says so."""
    rows = [] if rows is None else rows
    for shape in shapes:
        for name in names or (CPU_PATHS if device == "cpu" else GPU_PATHS):
            key = {"path": name, "device": device, **asdict(shape)}
            if any(all(row[k] == v for k, v in key.items()) for row in rows):
                continue
            try:
                (measured,) = in_process(measure_path, (name, shape, device, steps), limit)
            except (RuntimeError, ValueError) as error:
                measured = {"error": str(error)}
            row = {**key, **(measured or {"error": f"over {limit} s"})}
            row["environment"] = describe_environment(device)
            rows.append(row)
            on_row(row)
    return rows
