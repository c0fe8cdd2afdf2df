"""The plots of a comparison, from its report (the content of report.json) alone."""

import io
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib import ticker  # noqa: E402

COLORS = ["#2c6fbb", "#d1495b", "#2a9d6f", "#8d5fb0", "#c98a1b", "#5b6770"]  # arms, in their order
STYLES = ["-", "--", ":", "-."]  # families of parameters
INK = "#22303c"
GRID = "#e4e9ee"
FARTHEST = 50  # gaps beyond so many spreads are drawn there


@dataclass
class Plot:
    file: str
    title: str
    caption: str
    png: bytes
    width: int  # of the page, CSS pixels: text then has one size in all plots


def figure(columns, height=3.3, width=None):
    fig, axes = plt.subplots(1, columns, figsize=(width or 5.2 * columns, height), squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color("#9aa7b2")
        axis.tick_params(colors=INK, labelsize=9)
        axis.grid(True, color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
    return fig, list(axes[0])


def finish(fig, file, title, caption):
    fig.tight_layout()
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    plt.close(fig)
    return Plot(file, title, caption, buffer.getvalue(), width=round(84 * fig.get_figwidth()))


def label(axis, title, x=None, y=None):
    axis.set_title(title, fontsize=10.5, color=INK, loc="left")
    if x:
        axis.set_xlabel(x, fontsize=9, color=INK)
    if y:
        axis.set_ylabel(y, fontsize=9, color=INK)


def over_seeds(runs):
    """The steps of the runs, and at each the lowest, the mean and the highest value. A run may lack a step: one that
    the trainer skipped has no update."""
    columns = {}
    for run in runs:
        for step, value in zip(run["steps"], run["values"]):
            columns.setdefault(step, []).append(value)
    steps = sorted(columns)
    values = [columns[step] for step in steps]
    return steps, [min(v) for v in values], [sum(v) / len(v) for v in values], [max(v) for v in values]


def draw_curve(axis, arms, report, style="-", suffix="", marker=None):
    """One line per arm (mean over seeds), its seeds thin behind it, the band between lowest and highest."""
    for index, arm in enumerate(report["arms"]):
        runs, color = arms[arm["name"]], COLORS[index % len(COLORS)]
        if not any(run["steps"] for run in runs):
            continue
        steps, low, mean, high = over_seeds(runs)
        for run in runs if len(runs) > 1 else []:
            axis.plot(run["steps"], run["values"], color=color, linewidth=0.7, alpha=0.35, linestyle=style)
        axis.fill_between(steps, low, high, color=color, alpha=0.13, linewidth=0)
        axis.plot(steps, mean, color=color, linewidth=1.9, linestyle=style, marker=marker, markersize=4,
                  label=arm["name"] + suffix)


def band_note(report):
    seeds = len(report["seeds"])
    if seeds == 1:
        return "One seed."
    return f"Thick: mean over {seeds} seeds; thin: each seed; band: lowest to highest seed."


def learning(report):
    """Reward or loss while training, and the held-out figures."""
    curves = report["curves"]
    titles = {"critic/rewards/mean": "reward of the rollouts", "train/loss": "training loss", "val/loss": "held-out loss"}
    shown = [(name, titles[name]) for name in titles if name in curves]
    shown += [(name, "greedy accuracy, " + name.split("/")[1]) for name in curves if name.startswith("val-core/")]
    if not shown:
        return []
    fig, axes = figure(len(shown))
    for axis, (name, title) in zip(axes, shown):
        held_out = name.startswith("val")
        draw_curve(axis, curves[name], report, marker="o" if held_out else None)
        label(axis, title, "step", name)
        axis.legend(frameon=False, fontsize=9)
    return [finish(fig, "learning.png", "Learning", band_note(report))]


def families(curves):
    """Curve of the update RMS by family of parameters ("adam", "muon"); grpo and sft have prefixes of their own."""
    middle = "/optim/update_rms/"
    return {name.split(middle)[1]: curve for name, curve in sorted(curves.items()) if middle in name}


def distance(lr_runs, rms_runs):
    """Sum of lr * update RMS up to each step: how far the updates could have moved a weight."""
    result = []
    for lr, rms in zip(lr_runs, rms_runs):
        rate, total, values = dict(zip(lr["steps"], lr["values"])), 0.0, []
        for step, value in zip(rms["steps"], rms["values"]):
            total += rate.get(step, 0.0) * value
            values.append(total)
        result.append({"seed": rms["seed"], "steps": rms["steps"], "values": values})
    return result


def updates(report):
    """Learning rate, update RMS per family of parameters, and the distance that both make."""
    curves = report["curves"]
    rms, lr = families(curves), curves.get("actor/lr", curves.get("train/lr"))
    if not rms or lr is None:
        return []
    fig, axes = figure(3, width=12.4)
    draw_curve(axes[0], lr, report)
    label(axes[0], "learning rate", "step")
    axes[0].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for style, (family, curve) in zip(STYLES, rms.items()):
        draw_curve(axes[1], curve, report, style, f", {family} parameters")
    label(axes[1], "update RMS / lr", "step")
    axes[1].set_ylim(bottom=0)
    moved = {}
    for arm in (arm["name"] for arm in report["arms"]):
        has_muon = "muon" in rms and any(run["steps"] for run in rms["muon"][arm])
        moved[arm] = distance(lr[arm], rms["muon" if has_muon else "adam"][arm])
    draw_curve(axes[2], moved, report)
    label(axes[2], "sum of lr x update RMS (matrices)", "step")
    for axis in axes:
        axis.legend(frameon=False, fontsize=8)
    caption = ("The RMS of an update before the learning rate, and the sum of both up to a step: how far the arms' "
               "updates went, whatever their learning rates say. ")
    return [finish(fig, "updates.png", "Updates", caption + band_note(report))]


def bars(axis, quantity, report, scale):
    for index, arm in enumerate(report["arms"]):
        numbers = quantity["arms"][arm["name"]]
        center, color = numbers["center"] * scale, COLORS[index % len(COLORS)]
        axis.bar(index, center, color=color, width=0.6, alpha=0.85)
        exact = quantity["repeats"] == "exact"
        if not exact and len(numbers["values"]) > 1:
            axis.scatter([index] * len(numbers["values"]), [v * scale for v in numbers["values"]], s=16, color=INK,
                         zorder=3, alpha=0.7)
        text = f"{numbers['center']:,.0f} B" if exact else f"{center:.4g}"
        axis.annotate(text, (index, max(center, numbers["max"] * scale)), xytext=(0, 4), textcoords="offset points",
                      ha="center", fontsize=9, color=INK)
    axis.set_xticks(range(len(report["arms"])), [arm["name"] for arm in report["arms"]])
    axis.grid(False, axis="x")
    axis.margins(y=0.16)


def memory(report):
    shown = [q for q in report["quantities"] if q["unit"] == "bytes"]
    if not shown:
        return []
    fig, axes = figure(len(shown), width=3.3 * len(shown) + 1)
    for axis, quantity in zip(axes, shown):
        bars(axis, quantity, report, 1 / 2**20)
        label(axis, quantity["label"], y="MiB")
    return [finish(fig, "memory.png", "Memory", "Dots: seeds. Bars begin at zero.")]


def draw_times(axis, quantity, report):
    scale, unit = (1e3, "ms") if max(a["center"] for a in quantity["arms"].values()) < 1 else (1.0, "s")
    for index, arm in enumerate(report["arms"]):
        numbers, color = quantity["arms"][arm["name"]], COLORS[index % len(COLORS)]
        values = [v * scale for v in numbers["values"]]
        axis.plot(range(1, len(values) + 1), values, "o", color=color, markersize=4, alpha=0.8)
        axis.axhline(numbers["center"] * scale, color=color, linewidth=1.4,
                     label=f"{arm['name']}: median {numbers['center'] * scale:.3g} {unit}")
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    label(axis, quantity["label"], "pair of alternating steps", unit)
    axis.margins(y=0.25)
    axis.legend(frameon=False, fontsize=8.5)


def times(report):
    shown = [q for q in report["quantities"] if q["repeats"] == "timed steps"]
    if not shown:
        return []
    fig, axes = figure(len(shown))
    for axis, quantity in zip(axes, shown):
        draw_times(axis, quantity, report)
    caption = "Measured in one process, arm after arm on the same batch, so that a disturbance of the machine meets both."
    return [finish(fig, "times.png", "Times", caption)]


def judged(report):
    """(label, arm, gap / spread with its sign, needed, holds) of everything that has a spread."""
    rows = []
    for quantity in report["quantities"]:
        for arm, gap in quantity["gaps"].items():
            if quantity["repeats"] != "exact" and gap["ratio"] is not None and gap["spread"] > 0:
                ratio = gap["ratio"] if gap["gap"] > 0 else -gap["ratio"]
                rows.append((quantity["label"], arm, ratio, gap["needed_ratio"], gap["verdict"] == "holds"))
    return rows


def verdicts(report):
    rows = judged(report)
    if not rows:
        return []
    fig, (axis,) = figure(1, height=0.42 * len(rows) + 1.3, width=8.6)
    first, several = report["arms"][0]["name"], len(report["arms"]) > 2
    for place, (name, arm, ratio, needed, holds) in enumerate(reversed(rows)):
        axis.barh(place, 2 * needed, left=-needed, height=0.62, color="#e8edf2", zorder=1)
        color = COLORS[[a["name"] for a in report["arms"]].index(arm) % len(COLORS)]
        shown = max(-FARTHEST, min(FARTHEST, ratio))
        shape = "o" if shown == ratio else ">" if ratio > 0 else "<"
        axis.plot(shown, place, shape, color=color, markersize=8, markerfacecolor=color if holds else "white",
                  markeredgewidth=1.8, zorder=3)
    axis.set_xscale("symlog", linthresh=5)
    axis.set_xlim(-1.4 * FARTHEST, 1.4 * FARTHEST)
    ticks = (-FARTHEST, -10, -5, -2, 0, 2, 5, 10, FARTHEST)
    axis.set_xticks(ticks, [f"{t:+d}" if t else "0" for t in ticks])
    axis.minorticks_off()
    axis.axvline(0, color="#9aa7b2", linewidth=1)
    axis.set_yticks(range(len(rows)), [r[0] + (f" ({r[1]})" if several else "") for r in reversed(rows)])
    axis.grid(False, axis="y")
    label(axis, f"gap to {first}, in spreads", "gap / spread")
    caption = ("Grey: what the spread does not carry. Filled: the gap holds; hollow: level within spread. A gap can lie "
               "outside the grey and still not hold when the pairs disagree in sign. Arrow: farther out.")
    return [finish(fig, "verdicts.png", "Gaps beside their spread", caption)]


def draw_all(report):
    return [*verdicts(report), *learning(report), *updates(report), *memory(report), *times(report)]
