#!/usr/bin/env python3
"""Measures whether the best learning rate of a narrow model is that of wider ones, with and without muP, and draws it.

    tools/mup_transfer.py run PROGRAM LOSSES.json [--widths 64 128 256 512] [--powers -11 ... -4] [--steps 60]
    tools/mup_transfer.py draw LOSSES.json|docs/measurements/width_transfer.json OUT.svg

`run` trains the same small GPT at every width and rate (2^-11 to 2^-4) on data/tinyshakespeare.txt, with the same rates for all widths
("same") and with --mup-base-hidden-size of the narrowest ("mup"), and writes the mean loss of each run's last fifth of
steps: {"same": {"64": {"0.001": 2.9, ...}, ...}, "mup": ...}. Runs that are in the file already are left out, so a stopped
measurement continues. It then prints the best rate of every width. `draw` needs gnuplot.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS = 4

SCRIPT = """
set terminal svg size 960,430 dynamic enhanced font 'DejaVu Sans,14' background '#ffffff'
set output '{picture}'
set multiplot layout 1,2
set logscale x 2
set format x '2^{{%L}}'
set border 3 linecolor rgb '#9aa5b1' linewidth 1
set tics nomirror scale 0.5 textcolor rgb '#52606d'
set grid ytics linetype 1 linecolor rgb '#e4e7eb' linewidth 1
set xlabel 'learning rate' textcolor rgb '#52606d'
set ylabel 'training loss (nats per byte)' textcolor rgb '#52606d'
set yrange [{low}:{high}]
set key top center samplen 2 spacing 1.2 textcolor rgb '#1f2933'
"""
COLORS = ["#9fb3c8", "#62a0ca", "#2f6fa7", "#12355b", "#000000"]


def mean_loss(program, width, rate, steps, threads, base):
    """The mean loss of the last fifth of a run; infinite if it was not finite."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.jsonl"
        line = [program, "pretrain", "--data-path", ROOT / "data" / "tinyshakespeare.txt", "--split", "100,0,0",
                "--num-layers", 2, "--hidden-size", width, "--num-attention-heads", HEADS, "--seq-length", 32,
                "--micro-batch-size", 16, "--lr", rate, "--lr-decay-style", "constant", "--lr-warmup-iters", steps // 10,
                "--adam-beta2", 0.99, "--weight-decay", 0, "--init-method-std", 0.08, "--train-iters", steps,
                "--threads-per-rank", threads, "--log-json", log]
        if base:
            line += ["--mup-base-hidden-size", base, "--mup-base-head-dim", base // HEADS]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False)
        if done.returncode != 0 and "not finite" not in done.stderr:
            sys.exit(done.stderr)
        losses = [entry["loss"] for entry in map(json.loads, log.read_text().splitlines()) if "loss" in entry]
        last = losses[-(steps // 5):]
        return sum(last) / len(last) if len(losses) == steps and None not in last else math.inf


def best_rate(by_rate):
    return min((loss, float(rate)) for rate, loss in by_rate.items())[1]


def tell(losses):
    for kind, by_width in losses.items():
        best = {int(width): best_rate(by_rate) for width, by_rate in by_width.items()}
        text = ", ".join(f"{width}: 2^{math.log2(rate):.0f}" for width, rate in sorted(best.items()))
        print(f"{kind:5} best rates {text}; they differ by a factor of {max(best.values()) / min(best.values()):g}")


def run(arguments):
    path = pathlib.Path(arguments.losses)
    losses = json.loads(path.read_text()) if path.exists() else {}
    for width in arguments.widths:
        for kind, base in (("same", None), ("mup", min(arguments.widths))):
            by_rate = losses.setdefault(kind, {}).setdefault(str(width), {})
            for rate in (2.0**power for power in arguments.powers):
                if str(rate) in by_rate:
                    continue
                # At the base width the two are one run, as tests/parity/width_test.cpp checks.
                loss = (losses["same"][str(width)][str(rate)] if width == base else
                        mean_loss(arguments.program, width, rate, arguments.steps, arguments.threads, base))
                by_rate[str(rate)] = loss
                path.write_text(json.dumps(losses, indent=1) + "\n")
                print(f"{kind:5} width {width:4} rate 2^{math.log2(rate):.0f}: {loss:.4f}", flush=True)
    tell(losses)


def read_losses(path):
    """The losses of `run`, or of the last record of a measurement: a row "same 64" has a loss for each rate."""
    content = json.loads(pathlib.Path(path).read_text())
    if "records" not in content:
        return content
    losses = {}
    for name, *row in content["records"][-1]["rows"]:
        kind, width = name.split()
        losses.setdefault(kind, {})[width] = {
            str(2.0**int(column[2:])): math.inf if loss is None else loss
            for column, loss in zip(content["columns"][1:], row)}
    return losses


def draw(arguments):
    losses = read_losses(arguments.losses)
    tell(losses)
    finite = [loss for by_width in losses.values() for by_rate in by_width.values() for loss in by_rate.values()
              if math.isfinite(loss)]
    low = min(finite)
    script = SCRIPT.format(picture=arguments.picture, low=round(low - 0.05, 2), high=round(low + 1.2, 2))
    for kind, title in (("same", "the same rates for all widths"), ("mup", "--mup-base-hidden-size 64")):
        script += f"set title '{title}' noenhanced textcolor rgb '#1f2933'\n"
        curves, data = [], ""
        for color, (width, by_rate) in zip(COLORS, losses[kind].items()):
            curves.append(f"'-' with linespoints pointtype 7 pointsize 0.4 linewidth 2 linecolor rgb '{color}' title 'width {width}'")
            points = sorted((float(rate), loss) for rate, loss in by_rate.items() if math.isfinite(loss))
            data += "".join(f"{rate} {loss}\n" for rate, loss in points) + "e\n"
            best = best_rate(by_rate)
            curves.append(f"'-' with points pointtype 7 pointsize 1 linecolor rgb '{color}' notitle")
            data += f"{best} {dict(points)[best]}\ne\n"
        script += "plot " + ", ".join(curves) + "\n" + data
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measure = commands.add_parser("run")
    measure.add_argument("program")
    measure.add_argument("losses")
    measure.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512])
    measure.add_argument("--powers", type=int, nargs="+", default=list(range(-11, -3)), help="rates, as powers of 2")
    measure.add_argument("--steps", type=int, default=60)
    measure.add_argument("--threads", type=int, default=2)
    measure.set_defaults(do=run)
    picture = commands.add_parser("draw")
    picture.add_argument("losses")
    picture.add_argument("picture")
    picture.set_defaults(do=draw)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
