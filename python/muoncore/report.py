"""Draws the plots and the page of a comparison: python -m muoncore.report RUNDIR

Reads RUNDIR/report.json and nothing else, so that a report can be redrawn; writes the PNG plots and report.html beside it.
"""

import json
import os
import sys
from pathlib import Path


class ReportError(Exception):
    """Something that the caller can put right, in one sentence."""


def read_report(folder):
    path = Path(folder) / "report.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON: {error}") from error
    missing = {"title", "arms", "seeds", "rule", "quantities", "setup", "notes", "curves"} - set(report)
    if missing:
        raise ReportError(f"{path}: not a report of muoncore: no {', '.join(sorted(missing))}")
    return report


def write_whole(path, data):
    """Under the final name only when complete."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    os.replace(part, path)


def draw(folder):
    """Draws everything; returns the written files."""
    folder = Path(folder)
    report = read_report(folder)
    try:
        from muoncore import report_plots
    except ImportError as error:
        raise ReportError(
            f"the plots need matplotlib ({error}): pip install matplotlib, then `python -m muoncore.report {folder}`; "
            "report.md and report.json are complete"
        ) from error
    from muoncore import report_html

    plots = report_plots.draw_all(report)
    for plot in plots:
        write_whole(folder / plot.file, plot.png)
    write_whole(folder / "report.html", report_html.page(report, plots).encode("utf-8"))
    return [folder / plot.file for plot in plots] + [folder / "report.html"]


def main(arguments):
    if len(arguments) != 1:
        print("usage: python -m muoncore.report RUNDIR", file=sys.stderr)
        return 2
    try:
        for path in draw(arguments[0]):
            print(path)
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
