"""The typed call of a link against the same call over gRPC and a unix socket, run by run."""
import os

from measure import BUILD, json_lines, median

# Figure, the link's row, gRPC's, whether more is better, target.
PAIRS = (("typed verified call, hot, against gRPC over a unix socket", "hot_p50", "grpc_hot_p50", False, 35),
         ("typed calls with 64 open, against gRPC", "out64_calls", "grpc_out64_calls", True, 18),
         ("cold call, same CPU, against gRPC", "cold_same_cpu_p50", "grpc_cold_same_cpu_p50", False, 6.5))


def bench_grpc(table, quick):
    folder = os.path.join(BUILD, "tests", "bench")
    ratios = {pair[0]: [] for pair in PAIRS}
    for _ in range(3 if quick else 11):
        link = json_lines(os.path.join(folder, "link_bench"), "--reps", "1")
        grpc = json_lines(os.path.join(folder, "grpc_bench"))
        for figure, ours, theirs, more, _ in PAIRS:
            a, b = link[ours]["median"], grpc[theirs]["median"]
            ratios[figure].append(a / b if more else b / a)
    for figure, _, _, _, target in PAIRS:
        low, high = min(ratios[figure]), max(ratios[figure])
        ratio = median(ratios[figure])
        table.add(figure, f"{ratio:.1f}× [{low:.1f}..{high:.1f}]", f"≥ {target}×", ratio >= target)
