#!/usr/bin/env python3
"""Measures how the validation loss falls with Muon and with AdamW, on equal tokens, and draws it.

    tools/muon_curves.py run PROGRAM CURVES.json [--steps 1000] [--seeds 1 2 3] [--powers -12 ... -6] [--threads 2]
    tools/muon_curves.py draw CURVES.json|docs/measurements/muon_curves.json OUT.svg

`run` trains the small GPT of the quickstart (4 layers, width 128, samples of 64 bytes, 12 a step) on data/tinyshakespeare.txt.
First each optimizer gets its own best learning rate, a power of 2, by the last validation loss of the first seed; then all
seeds are trained with it. Warm-up, cosine, weight decay and clipping are the same for both. It writes
{"adam": {"rates": {"0.001": 1.9, ...}, "rate": 0.001, "curves": {"1": [[step, loss], ...], ...}}, "muon": ...}. Runs that are
in the file already are left out, so a stopped measurement continues. Then it prints the losses at the end, and after how
many steps Muon has the last loss of AdamW. `draw` needs gnuplot.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TITLES = {"adam": "AdamW", "muon": "Muon"}
COLORS = {"adam": "#9fb3c8", "muon": "#2f6fa7"}

SCRIPT = """
set terminal svg size 760,430 dynamic enhanced font 'DejaVu Sans,14' background '#ffffff'
set output '{picture}'
set border 3 linecolor rgb '#9aa5b1' linewidth 1
set tics nomirror scale 0.5 textcolor rgb '#52606d'
set grid ytics linetype 1 linecolor rgb '#e4e7eb' linewidth 1
set xlabel 'steps' textcolor rgb '#52606d'
set ylabel 'validation loss (nats per byte)' textcolor rgb '#52606d'
set yrange [{low}:{high}]
set key top right samplen 2 spacing 1.2 textcolor rgb '#1f2933'
"""


def curve_of(arguments, optimizer, rate, seed):
    """[[step, validation loss], ...] of a run; without its end if a loss was not finite."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.jsonl"
        line = [arguments.program, "pretrain", "--data-path", ROOT / "data" / "tinyshakespeare.txt", "--split", "90,10,0",
                "--num-layers", 4, "--num-attention-heads", 4, "--hidden-size", 128, "--seq-length", 64,
                "--global-batch-size", 12, "--micro-batch-size", 12, "--optimizer", optimizer, "--lr", rate, "--min-lr", rate / 10,
                "--lr-decay-style", "cosine", "--lr-warmup-iters", arguments.steps // 10, "--adam-beta2", 0.99,
                "--weight-decay", 0.1, "--clip-grad", 1, "--train-iters", arguments.steps, "--seed", seed,
                "--eval-interval", max(1, arguments.steps // 20), "--eval-iters", 100, "--threads-per-rank", arguments.threads,
                "--log-json", log]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False)
        if done.returncode != 0 and "not finite" not in done.stderr:
            sys.exit(done.stderr)
        entries = map(json.loads, log.read_text().splitlines())
        return [[entry["step"], entry["valid_loss"]] for entry in entries if entry.get("valid_loss") is not None]


def last_loss(curve, steps):
    return curve[-1][1] if curve and curve[-1][0] == steps else float("inf")


def mean_curve(curves):
    return [[points[0][0], statistics.mean(loss for _, loss in points)] for points in zip(*curves.values())]


def tell(curves):
    means = {optimizer: mean_curve(found["curves"]) for optimizer, found in curves.items()}
    for optimizer, found in curves.items():
        last = [curve[-1][1] for curve in found["curves"].values()]
        print(f"{TITLES[optimizer]:6} rate {found['rate']:g}: {means[optimizer][-1][1]:.4f} after {means[optimizer][-1][0]} steps "
              f"({min(last):.4f} to {max(last):.4f} over {len(last)} seeds)")
    goal = means["adam"][-1][1]
    reached = next((step for step, loss in means["muon"] if loss <= goal), None)
    print(f"Muon has the last loss of AdamW after {reached} steps" if reached else "Muon does not reach the last loss of AdamW")


def run(arguments):
    path = pathlib.Path(arguments.curves)
    curves = json.loads(path.read_text()) if path.exists() else {}

    def keep():
        path.write_text(json.dumps(curves, indent=1) + "\n")

    for optimizer, title in TITLES.items():
        found = curves.setdefault(optimizer, {"rates": {}, "curves": {}})
        for rate in (2.0**power for power in arguments.powers):
            if str(rate) in found["rates"]:
                continue
            found["rates"][str(rate)] = last_loss(curve_of(arguments, optimizer, rate, arguments.seeds[0]), arguments.steps)
            keep()
            print(f"{title:6} rate {rate:g}: {found['rates'][str(rate)]:.4f}", flush=True)
        found["rate"] = float(min(found["rates"], key=found["rates"].get))
        if found["rate"] in (2.0**arguments.powers[0], 2.0**arguments.powers[-1]):
            print(f"{title}: the best rate is at the end of the range: give --powers beyond it")
        for seed in arguments.seeds:
            if str(seed) in found["curves"]:
                continue
            found["curves"][str(seed)] = curve_of(arguments, optimizer, found["rate"], seed)
            keep()
            print(f"{title:6} seed {seed}: {found['curves'][str(seed)][-1][1]:.4f}", flush=True)
    tell(curves)


def read_curves(path):
    """The curves of `run`, or of the last record of a measurement: a row "adam 1" has a loss for each step."""
    content = json.loads(pathlib.Path(path).read_text())
    if "records" not in content:
        return content
    curves = {}
    for name, rate, *losses in content["records"][-1]["rows"]:
        optimizer, seed = name.split()
        found = curves.setdefault(optimizer, {"rate": rate, "curves": {}})
        found["curves"][seed] = [[int(step), loss] for step, loss in zip(content["columns"][2:], losses)]
    return curves


def draw(arguments):
    curves = read_curves(arguments.curves)
    tell(curves)
    low = min(loss for found in curves.values() for curve in found["curves"].values() for _, loss in curve)
    script = SCRIPT.format(picture=arguments.picture, low=round(low - 0.05, 2), high=round(low + 0.85, 2))
    plots, data = [], ""
    for optimizer, found in curves.items():
        color = COLORS[optimizer]
        lines = [(curve, 1, "notitle") for curve in found["curves"].values()]
        lines.append((mean_curve(found["curves"]), 3, f"title '{TITLES[optimizer]}, learning rate {found['rate']:.2g}'"))
        for curve, width, title in lines:
            plots.append(f"'-' with lines linewidth {width} linecolor rgb '{color}' {title}")
            data += "".join(f"{step} {loss}\n" for step, loss in curve) + "e\n"
    subprocess.run(["gnuplot"], input=script + "plot " + ", ".join(plots) + "\n" + data, text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measure = commands.add_parser("run")
    measure.add_argument("program")
    measure.add_argument("curves")
    measure.add_argument("--steps", type=int, default=1000)
    measure.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    measure.add_argument("--powers", type=int, nargs="+", default=list(range(-12, -5)), help="rates, as powers of 2")
    measure.add_argument("--threads", type=int, default=2)
    measure.set_defaults(do=run)
    picture = commands.add_parser("draw")
    picture.add_argument("curves")
    picture.add_argument("picture")
    picture.set_defaults(do=draw)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
