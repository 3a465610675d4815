"""The training step recorded once as a CUDA graph and replayed: one launch instead of thousands.

A graph has fixed shapes. Mask sizes change every step, so index sets are padded to one of a few
*buckets*, with the sizes themselves read from the device; the last batch of an epoch is filled up
with rows that count 0. Padding changes no result: what is not valid is in no attention and no term.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from varjepa.models.masking import largest_mask_sizes
from varjepa.settings import MaskSettings
from varjepa.training.step import StepInputs, Stepper

Bucket = tuple[int, int]

WARM_UP = 2
"""Ordinary steps of a bucket before it is recorded; they train like any other."""

MULTIPLE = 8
"""Bucket sizes are multiples of this many places."""

MAX_BUCKETS = 3
"""Maximum number of buckets per axis."""


class PaddedStepper(Stepper):
    """A stepper whose shapes depend on the bucket alone; everything else is read from tables."""

    def get_ready(self) -> None:
        steps, device = self.steps_per_epoch, self.device
        # a line per step of the epoch, in tensors that the graphs refer to
        self.table_index = torch.zeros(steps, self.batch, dtype=torch.long, device=device)
        self.table_share = torch.ones(steps, self.batch, device=device)
        self.table_sizes = torch.zeros(steps, 2, dtype=torch.long, device=device)
        self.table_rates = torch.zeros(steps, 5, device=device)
        self.cursor = torch.zeros(1, dtype=torch.long, device=device)

    def begin_epoch(self) -> None:
        super().begin_epoch()
        spare = self.steps_per_epoch * self.batch - len(self.rows)
        # copies of the last batch's first row fill it up
        first = self.order[(self.steps_per_epoch - 1) * self.batch].expand(spare)
        filled = torch.cat([self.order, first])
        self.table_index.copy_(filled.view_as(self.table_index))
        self.table_share[-1, self.batch - spare :] = 0.0
        self.table_sizes.copy_(torch.tensor(self.sizes))
        rates = [
            (rate, *ramps, (self.done + i) / self.total)
            for i, (rate, ramps) in enumerate(self.schedule)
        ]
        self.table_rates.copy_(torch.tensor(rates))
        self.cursor.zero_()

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        super().restore(saved)
        self.cursor.fill_(self.place)

    def step(self) -> None:
        bucket = bucket_for(self.sizes[self.place], self.loss.shape.features, self.loss.masks)
        self.place, self.done = self.place + 1, self.done + 1
        self.take_line(bucket)

    def take_line(self, bucket: Bucket) -> None:
        index, share, sizes, rates = (
            table.index_select(0, self.cursor)[0]
            for table in (self.table_index, self.table_share, self.table_sizes, self.table_rates)
        )
        self.descend(
            StepInputs(
                index=index,
                share=share,
                sizes=(sizes[0], sizes[1]),
                bucket=bucket,
                rate=rates[0],
                ramps=rates[1:4],
                progress=rates[4],
            )
        )
        self.cursor += 1


class CapturedStepper(PaddedStepper):
    """A stepper that replays a CUDA graph per bucket."""

    def get_ready(self) -> None:
        super().get_ready()
        self.graphs: dict[Bucket, torch.cuda.CUDAGraph] = {}
        self.seen: Counter[Bucket] = Counter()
        self.stream = torch.cuda.Stream(self.device)
        self.pool = torch.cuda.graph_pool_handle()
        self.gave_up = False

    def take_line(self, bucket: Bucket) -> None:
        self.seen[bucket] += 1
        if bucket not in self.graphs and self.seen[bucket] > WARM_UP and not self.gave_up:
            self.record(bucket)
        if bucket in self.graphs:
            self.graphs[bucket].replay()
            return
        # recording needs the stream it will record on to have run the same work before
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            super().take_line(bucket)
        current.wait_stream(self.stream)

    def tensors(self) -> dict[str, Tensor]:
        buckets = [(*bucket, count) for bucket, count in self.seen.items()]
        return {**super().tensors(), "buckets": torch.tensor(buckets)}  # (buckets, 3)

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Record every bucket again that had a graph, so that the same steps are replayed.

        That takes real steps; everything they changed gets its saved value afterwards, in place.
        """
        buckets = saved["buckets"].tolist() if "buckets" in saved else []  # taken without graphs
        self.begin_epoch()
        for *bucket, count in buckets:
            for _ in range(min(count, WARM_UP + 1)):
                self.cursor.zero_()
                self.take_line((bucket[0], bucket[1]))
        super().restore(saved)
        self.seen = Counter({(p_ctx, p_trg): count for p_ctx, p_trg, count in buckets})

    def record(self, bucket: Bucket) -> None:
        """Record the bucket's step as a graph; if that fails, continue without graphs."""
        graph = torch.cuda.CUDAGraph()
        numbers = self.streams.numbers
        current, state = torch.cuda.current_stream(self.device), numbers.get_state()
        graph.register_generator_state(numbers)
        self.optimiser.zero_grad()
        try:
            # NCCL's own threads ask the GPU now and then, which must not break off a recording
            mode = "global" if self.world.size == 1 else "thread_local"
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode=mode):
                super().take_line(bucket)
        except RuntimeError as error:
            self.gave_up = True
            self.graphs.clear()
            # a recording that broke off leaves its stream current and its generator recording
            torch.cuda.set_stream(current)
            fresh = torch.Generator(self.device)
            fresh.set_state(state)
            self.streams = replace(self.streams, numbers=fresh)
            warnings.warn(
                f"training steps could not be recorded as CUDA graphs ({error}); "
                "training goes on without, slower",
                stacklevel=2,
            )
        else:
            self.graphs[bucket] = graph


def bucket_for(sizes: tuple[int, int], features: int, masks: MaskSettings) -> Bucket:
    """The smallest bucket that holds both sizes."""
    p_ctx, p_trg = (
        min(largest, -(-size // pace) * pace)
        for size, largest in zip(sizes, largest_mask_sizes(features, masks), strict=True)
        for pace in [max(MULTIPLE, -(-largest // MAX_BUCKETS))]
    )
    return p_ctx, p_trg
