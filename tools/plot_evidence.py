#!/usr/bin/env python3
"""The plots of docs/img, which docs/evidence.md shows; run with .venv/bin/python.

    tools/plot_evidence.py losses       1,000 real steps: torch's Muon, Emerging-Optimizers' and ours (seconds)
    tools/plot_evidence.py update_rms   the addition task: AdamW's update and Muon's three ways of matching it (minutes)
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from muoncore.report_plots import COLORS, figure, finish, label  # noqa: E402

RECORD = ROOT / "tests/data/golden/recorded_gradients.safetensors"
IMAGES = ROOT / "docs/img"


def our_losses(tests):
    """The losses that RecordedGradients.ThousandRealSteps of test_optim leaves behind."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "losses"
        subprocess.run([tests, "--gtest_filter=RecordedGradients.ThousandRealSteps", "--gtest_brief=1"], check=True,
                       env={**os.environ, "MUONCORE_LOSSES": str(file), "OMP_NUM_THREADS": "1"})
        return [float(line) for line in file.read_text().split()]


def smooth(values, width=8):
    """Means over a pass of the data (8 batches), so that three curves can be told apart."""
    return [sum(values[i:i + width]) / width for i in range(0, len(values) - width + 1, width)]


def draw_losses(build):
    record = safetensors.numpy.load_file(RECORD)
    curves = {"torch.optim.Muon (bf16 inside)": list(record["losses/torch"]),
              "Emerging-Optimizers 0.3.0 (fp32)": list(record["losses/emerging"]),
              "muoncore (fp32)": our_losses(build / "tests/test_optim")}
    fig, (whole, ratio) = figure(2)
    for (name, values), color, style in zip(curves.items(), COLORS, ["-", "--", ":"]):
        whole.plot(range(4, 1000, 8), smooth(values), color=color, linestyle=style, linewidth=2.4, label=name)
        base = smooth(curves["Emerging-Optimizers 0.3.0 (fp32)"])
        ratio.plot(range(4, 1000, 8), [a / b for a, b in zip(smooth(values), base)], color=color, linestyle=style,
                   linewidth=1.8)
    whole.set_yscale("log")
    whole.legend(fontsize=8.5, frameon=False)
    label(whole, "Training loss, means of 8 batches", "step", "mean squared error")
    label(ratio, "The same over that of Emerging-Optimizers", "step", "ratio")
    ratio.set_ylim(0.8, 1.2)
    return finish(fig, "losses.png", "", "")


MODES = ["stationary", "bias_corrected", "measured"]
SFT_STEPS, GRPO_STEPS = 60, 80


def run(build, command, base, folder, changes):
    """One run of the program without weight decay; returns the metrics of its training steps."""
    words = [f"trainer.default_local_dir={folder}", "trainer.logger=[file]", *changes]
    print(" ".join(["muoncore", command, base, *words]), flush=True)
    done = subprocess.run([build / "muoncore", command, ROOT / base, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["data"] for row in rows if any(key.endswith("/lr") for key in row["data"])}


def rms_of_matrices(folder, metrics, lr_key):
    """AdamW's update RMS over the matrices that Muon would update, from the weights after each step:
    RMS(W_t - W_(t-1)) / lr_t. The metric of the run pools embeddings and norms too."""
    before, steps, values = None, [], []
    for step in sorted(metrics):
        weights = safetensors.numpy.load_file(folder / f"global_step_{step}/actor/huggingface/model.safetensors")
        body = np.concatenate([w.astype(np.float64).ravel() for name, w in sorted(weights.items())
                               if ".layers." in name and w.ndim == 2])
        if before is not None and metrics[step][lr_key] > 0:
            steps.append(step)
            values.append(np.sqrt(np.mean((body - before) ** 2)) / metrics[step][lr_key])
        before = body
    return steps, values


def arms(build, command, base, folder, prefix, common, lr_key, rms_key):
    """Per arm: steps and update RMS on the matrices."""
    changes = [*common, f"{prefix}weight_decay=0"]
    adam = folder / "adamw"
    metrics = run(build, command, base, adam, [*changes, f"{prefix}optimizer=adam", "trainer.save_freq=1"])
    curves = {"AdamW, the same matrices": rms_of_matrices(adam, metrics, lr_key)}
    for mode in MODES:
        metrics = run(build, command, base, folder / mode,
                      [*changes, f"{prefix}optimizer=muon", f"{prefix}muon_match_adamw_update_rms=true",
                       f"{prefix}muon_match_adamw_update_rms_mode={mode}"])
        curves[f"Muon, {mode}"] = ([*metrics][1:], [row[rms_key] for row in metrics.values()][1:])
    return curves


def draw_update_rms(build):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        panels = {
            "SFT from random weights": arms(
                build, "sft", "examples/addition/sft.yaml", folder / "sft", "optim.",
                [f"trainer.total_training_steps={SFT_STEPS}", "optim.lr_wsd_decay_steps=1", "data.eval_size=1"],
                "train/lr", "train/optim/update_rms/muon")}
        run(build, "sft", "examples/addition/sft.yaml", folder / "start", [])
        start = folder / "start/global_step_500/actor/huggingface"
        panels["GRPO after SFT"] = arms(
            build, "grpo", "examples/addition/grpo.yaml", folder / "grpo", "actor_rollout_ref.actor.optim.",
            [f"actor_rollout_ref.model.path={start}", f"trainer.total_training_steps={GRPO_STEPS}",
             "trainer.test_freq=-1"], "actor/lr", "actor/optim/update_rms/muon")
    fig, axes = figure(2)
    for axis, (title, curves) in zip(axes, panels.items()):
        for (arm, (steps, values)), color in zip(curves.items(), ["#22303c", *COLORS]):
            axis.plot(steps, values, color=color, linewidth=2, label=arm)
            adam = curves["AdamW, the same matrices"][1]
            print(f"{title}, {arm}: " + ", ".join(f"step {s} {v:.2f}" for s, v in zip(steps, values)
                                                  if s in (2, 5, 10, 20, 40, 60, 80)),
                  *(f"; steps 2 to {last} over AdamW's {sum(values[:last - 1]) / sum(adam[:last - 1]):.2f}"
                    for last in (20, 40, steps[-1])), sep="")
        axis.set_ylim(0, 1)
        label(axis, title, "step", "RMS of the update, without learning rate")
    axes[0].legend(fontsize=8.5, frameon=False)
    return finish(fig, "update_rms.png", "", "")


PLOTS = {"losses": draw_losses, "update_rms": draw_update_rms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plot", choices=PLOTS)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="folder of the build")
    parser.add_argument("--out", type=pathlib.Path, default=IMAGES, help="folder for the picture")
    args = parser.parse_args()
    plot = PLOTS[args.plot](args.build)
    args.out.mkdir(exist_ok=True)
    (args.out / plot.file).write_bytes(plot.png)
    print(args.out / plot.file, len(plot.png), "bytes")


if __name__ == "__main__":
    main()
