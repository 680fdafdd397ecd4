"""Device time of a short piece of work, measured inside a CUDA graph so that launches from Python do not count."""

from collections.abc import Callable
from statistics import median

import torch


def graph_time_us(work: Callable[[], object], *, repeats: int = 9) -> float:
    """Median µs of one replay of `work`, which is captured after one plain run (that run compiles its kernels)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
        graph.replay()
        times: list[float] = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
    return median(times)
