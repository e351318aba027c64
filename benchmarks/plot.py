"""Picture of our times by DOLFINx's, a bar for each form and kind of call."""

from pathlib import Path
from typing import Any

from compare import ratio

KINDS = {"coefficient": "#3d8c6f", "points": "#dd9f3c", "first": "#7a87c4"}


def draw(entries: list[dict[str, Any]], path: Path) -> None:
    """Write the picture of the cases that DOLFINx did; one panel for each number of ranks.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    compared = [entry for entry in entries if "DOLFINx" in entry["results"]]
    ranks = sorted({entry["ranks"] for entry in compared})
    figure = Figure(figsize=(11, 3.2 * len(ranks)), layout="constrained")
    panels = figure.subplots(len(ranks), 1, squeeze=False)[:, 0]
    for axes, n in zip(panels, ranks, strict=True):
        _panel(axes, [entry for entry in compared if entry["ranks"] == n])
        axes.set_title(f"{n} rank{'s' if n > 1 else ''}", loc="left")
    panels[0].legend(ncols=len(KINDS), frameon=False)
    figure.savefig(path, dpi=110)


def _panel(axes: Any, entries: list[dict[str, Any]]) -> None:
    width = 0.8 / len(KINDS)
    for i, (kind, color) in enumerate(KINDS.items()):
        places = [k + (i - (len(KINDS) - 1) / 2) * width for k in range(len(entries))]
        ratios = [ratio(entry["results"], kind, "DOLFINx") or 1.0 for entry in entries]
        heights = [x - 1 for x in ratios]  # bars that hang from 1 are our lead
        axes.bar(places, heights, width, bottom=1, color=color, label=f"{kind} / DOLFINx")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    axes.minorticks_off()
    names = [entry["name"] for entry in entries]
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)
    axes.set_ylabel("our time by DOLFINx's")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
