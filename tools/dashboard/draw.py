"""Draws manifests/monitoring/dashboard.json with what its expressions give in a Prometheus since START:
draw.py URL START FILE. Fails if a panel has no data."""

import io
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

URL, START, FILE = sys.argv[1:]
END, SCRAPE = int(time.time()), 5
DASHBOARD = json.load(open("manifests/monitoring/dashboard.json"))
COLORS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c"}
FAINT = "#d5d8dc"


def ask(path, **parameters):
    url = f"{URL}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    # The server is on this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        return json.load(answer)["data"]["result"]


def series(panel):
    """Name and points of each series. The interval is Grafana's: four scrapes."""
    found = []
    for target in panel["targets"]:
        query = target["expr"].replace("$network", ".*").replace("$__rate_interval", f"{4 * SCRAPE}s")
        if target.get("instant"):
            answer = ask("query", query=query, time=END)
        else:
            answer = ask("query_range", query=query, start=START, end=END, step=2 * SCRAPE)
        for one in answer:
            labels = one["metric"] | {"pool": one["metric"].get("pool", "")}
            name = target["legendFormat"]
            for label, value in labels.items():
                name = name.replace("{{" + label + "}}", value)
            name = re.sub(r"{{\w+}}", "", name)
            points = {int(at): float(value) for at, value in one.get("values") or [one["value"]]}
            points = {at: value for at, value in points.items() if not math.isnan(value)}
            if points:
                found.append((name.strip(), points))
    return found


def shown(panel, value):
    """What stands for a value, and its color."""
    defaults = panel["fieldConfig"]["defaults"]
    color = [step["color"] for step in defaults["thresholds"]["steps"] if value >= (step["value"] or 0)][-1]
    text = f"{value:g}"
    if defaults.get("unit") == "percentunit":
        text = f"{value:.1%}"
    elif defaults.get("unit") == "s":
        units = [(86400, "days"), (3600, "h"), (60, "min"), (1, "s")]
        size, unit = next((pair for pair in units if value >= 2 * pair[0]), units[-1])
        text = f"{value / size:.1f} {unit}"
    mapped = [mapping["options"].get(f"{value:g}") for mapping in defaults.get("mappings", [])]
    if any(mapped):
        text, color = mapped[0]["text"], mapped[0]["color"]
    return text, COLORS[color]


def draw(axes, panel):
    defaults = panel["fieldConfig"]["defaults"]
    found = series(panel)
    if not found:
        sys.exit(f"{panel['title']} has no data")
    axes.set_title(panel["title"], loc="left", fontsize=9)
    axes.spines[:].set_color(FAINT)
    if panel["type"] == "stat":
        text, color = shown(panel, *found[0][1].values())
        axes.set_facecolor(color)
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=15, transform=axes.transAxes)
    elif panel["type"] == "bargauge":
        for name, points in reversed(found):
            text, color = shown(panel, *points.values())
            axes.barh(name, defaults["max"], color=FAINT, height=0.6)
            axes.barh(name, min(defaults["max"], *points.values()), color=color, height=0.6)
            axes.text(defaults["max"] * 0.99, name, text, ha="right", va="center", fontsize=9)
        axes.set(xlim=(0, defaults["max"]), xticks=[])
    else:
        times = sorted(set().union(*(points for _, points in found)))
        minutes = [(at - int(START)) / 60 for at in times]
        if defaults["custom"].get("stacking"):
            layers = [[points.get(at, 0) for at in times] for _, points in found]
            axes.stackplot(minutes, layers, labels=[name for name, _ in found], alpha=0.6, linewidth=0)
        else:
            for name, points in found:
                axes.plot(minutes, [points.get(at, float("nan")) for at in times], label=name, linewidth=1)
        axes.set_ylim(bottom=0)
        axes.grid(color=FAINT, linewidth=0.5)
        axes.xaxis.set_major_formatter("{x:g} min")
        if "unit" in defaults:
            axes.yaxis.set_major_formatter(matplotlib.ticker.EngFormatter(defaults["unit"]))
        below = {"bbox_to_anchor": (0, 0), "bbox_transform": axes.figure.transSubfigure}
        tight = {"handlelength": 0.8, "handletextpad": 0.5, "columnspacing": 0.8, "frameon": False}
        axes.legend(loc="lower left", ncol=9, fontsize=6.5, **tight, **below)


def main():
    plt.rcParams.update({"font.sans-serif": ["DejaVu Sans", "Verdana"], "axes.axisbelow": True})
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "metes"})
    plt.rcParams.update({"xtick.labelsize": 7, "ytick.labelsize": 7})
    column, row = 36, 23  # in points
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in DASHBOARD["panels"])
    figure = plt.figure(figsize=(24 * column / 72, rows * row / 72))
    grid = figure.add_gridspec(rows, 24, left=0, right=1, top=1, bottom=0)
    for panel in DASHBOARD["panels"]:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cell = figure.add_subfigure(grid[y : y + h, x : x + w], edgecolor=FAINT, linewidth=1)
        left, bottom = {"stat": (8, 8), "bargauge": (110, 8)}.get(panel["type"], (36, 34))
        cell.subplots_adjust(left / w / column, bottom / h / row, 1 - 10 / w / column, 1 - 22 / h / row)
        draw(cell.subplots(), panel)
    text = io.StringIO()
    figure.savefig(text, metadata={"Date": None})
    # A tenth of a point is less than anybody sees, and nothing is indented or turned by -0 degrees.
    short = re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.1f}", text.getvalue())
    short = re.sub(r'(?m)^ +|(?<=") transform="rotate\(-0 [^"]*"', "", short)
    pathlib.Path(FILE).write_text(short)


main()
