"""The page of a comparison: one file, images inside, nothing loaded from anywhere."""

import base64
import html

STYLE = """
:root { --ink: #22303c; --soft: #5f6f7d; --line: #e1e7ec; --back: #f6f8fa; --holds: #1d7f52; --level: #7a6a2c; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
       font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 27px; line-height: 1.25; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 40px 0 12px; }
p, li { max-width: 82ch; }
.soft { color: var(--soft); }
.card { background: white; border: 1px solid var(--line); border-radius: 10px; padding: 18px 22px; margin: 12px 0;
        overflow-x: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(235px, 1fr)); gap: 14px; margin: 22px 0; }
.cards .card { margin: 0; padding: 14px 18px; }
.cards .name { color: var(--soft); font-size: 13px; }
.cards .gap { font-size: 22px; font-weight: 650; margin: 2px 0; font-variant-numeric: tabular-nums; }
.cards .values { font-size: 13px; color: var(--soft); margin-bottom: 8px; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--line); }
th, td { padding: 7px 8px; white-space: nowrap; }
td { text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
td small { color: var(--soft); }
.setup td { text-align: left; white-space: normal; vertical-align: top; }
.setup td:first-child { white-space: nowrap; color: var(--soft); }
.pill { display: inline-block; border-radius: 99px; padding: 1px 10px; font-size: 12.5px; font-weight: 600;
        background: #eef1f4; color: var(--soft); }
.pill.holds { background: #e2f4ea; color: var(--holds); }
.pill.level { background: #f7f1da; color: var(--level); }
figure { margin: 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--soft); font-size: 13.5px; margin-top: 8px; }
code { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere; }
ul { padding-left: 20px; }
"""


def scale_of(quantity):
    """(factor, decimals, unit), chosen by the first arm."""
    center = abs(next(iter(quantity["arms"].values()))["center"])
    if quantity["unit"] == "bytes":
        return (1, 0, "B") if quantity["repeats"] == "exact" else (2**-20, 2, "MiB")
    if quantity["unit"] == "seconds":
        return (1e3, 2 if center < 0.1 else 1, "ms") if center < 1 else (1, 2, "s")
    return (1, 0, "1/s") if quantity["unit"] == "per second" else (1, 3, "")


def number(value, scale, sign=""):
    factor, decimals, _ = scale
    return f"{value * factor:{sign},.{decimals}f}".replace("-", "\u2212")


def pill(verdict):
    kind = "holds" if verdict.startswith("holds") else "level" if verdict.startswith("level") else ""
    return f'<span class="pill {kind}">{html.escape(verdict)}</span>'


def percent(relative):
    return "" if relative is None else f"{100 * relative:+.1f} %".replace("-", "\u2212")


def cell(numbers, quantity, scale):
    text = number(numbers["center"], scale)
    if quantity["repeats"] == "exact" or len(numbers["values"]) < 2:
        return text
    text += f" \u00b1 {number(numbers['deviation'], scale)}"
    if quantity["repeats"] == "timed steps":
        return text
    return f"{text}<br><small>{number(numbers['min'], scale)} to {number(numbers['max'], scale)}</small>"


def show_ratio(ratio):
    return "no spread" if ratio is None else "&gt; 1000" if ratio > 1000 else f"{ratio:.1f}"


def row(quantity, first, other):
    scale, gap = scale_of(quantity), quantity["gaps"][other]
    judged = quantity["repeats"] != "exact" and len(quantity["arms"][first]["values"]) > 1
    ratio = "" if not judged else show_ratio(gap["ratio"])
    name = html.escape(quantity["label"]) + (f" <small>{scale[2]}</small>" if scale[2] else "")
    cells = [name, cell(quantity["arms"][first], quantity, scale), cell(quantity["arms"][other], quantity, scale),
             number(gap["gap"], scale, "+"), percent(gap["relative"]),
             number(gap["spread"], scale) if judged else "", ratio, pill(gap["verdict"])]
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def table(report, other):
    first = report["arms"][0]["name"]
    names = ["", html.escape(first), html.escape(other), "gap", "gap %", "spread", "gap / spread", "verdict"]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "\n".join(row(q, first, other) for q in report["quantities"])
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def card(quantity, first, other):
    scale, gap = scale_of(quantity), quantity["gaps"][other]
    headline = percent(gap["relative"])
    if quantity["unit"] == "score" or not headline:
        headline = number(gap["gap"], scale, "+") + (f" {scale[2]}" if scale[2] else "")
    values = (f"{html.escape(first)} {number(quantity['arms'][first]['center'], scale)}, "
              f"{html.escape(other)} {number(quantity['arms'][other]['center'], scale)} {scale[2]}")
    return (f'<div class="card"><div class="name">{html.escape(quantity["label"])}</div><div class="gap">{headline}</div>'
            f'<div class="values">{values}</div>{pill(gap["verdict"])}</div>')


def cards(report, other):
    first = report["arms"][0]["name"]
    return '<div class="cards">' + "".join(card(q, first, other) for q in report["quantities"]) + "</div>"


def picture(plot):
    data = base64.b64encode(plot.png).decode("ascii")
    return (f"<h2>{html.escape(plot.title)}</h2><div class=\"card\"><figure>"
            f'<img alt="{html.escape(plot.title)}" width="{plot.width}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(plot.caption)}</figcaption></figure></div>")


def setup(report):
    rows = [("arm " + arm["name"], "<code>" + html.escape(" ".join(arm["overrides"])) + "</code>") for arm in report["arms"]]
    rows.append(("seeds", ", ".join(str(seed) for seed in report["seeds"])))
    rows += [(name, html.escape(value)) for name, value in report["setup"].items()]
    body = "".join(f"<tr><td>{html.escape(name)}</td><td>{value}</td></tr>" for name, value in rows)
    return f'<div class="card"><table class="setup"><tbody>{body}</tbody></table></div>'


def items(lines):
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def page(report, plots):
    first, others = report["arms"][0]["name"], [arm["name"] for arm in report["arms"][1:]]
    parts = [f"<h1>{html.escape(report['title'])}</h1>"]
    for other in others:
        parts.append(f'<h2>{html.escape(other)} against {html.escape(first)}</h2>')
        parts.append(cards(report, other))
        parts.append(table(report, other))
    parts.append('<p class="soft">Mean \u00b1 standard deviation and range over the seeds; times: median \u00b1 robust '
                 "deviation over the timed steps.</p>")
    parts.append(f"<h2>What a verdict means</h2><p>{html.escape(report['rule'])}</p>")
    parts += [picture(plot) for plot in plots]
    parts.append("<h2>Where the numbers come from</h2>")
    parts.append(items(f"<b>{html.escape(q['label'])}</b> ({q['better']} is better): {html.escape(q['source'])}"
                       for q in report["quantities"]))
    parts.append(items(html.escape(note) for note in report["notes"]))
    parts += ["<h2>Set-up</h2>", setup(report)]
    body = "\n".join(parts)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(report["title"])}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
            f"<body><main>\n{body}\n</main></body></html>\n")
