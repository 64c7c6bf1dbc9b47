"""Formats the comparison as a table in Markdown and as a chart in SVG."""
import math
from dataclasses import dataclass
from html import escape

from rows import RATES, SHARE, say


@dataclass(frozen=True)
class About:
    """The machine, the date and the settings of a comparison."""
    host: str
    date: str
    commit: str
    rounds: int
    in_memory: bool
    # The lines about the machine's ceilings that `cargo xtask bench` prints.
    ceilings: tuple


def markdown(outcomes, about):
    """Returns the text of peers.md."""
    s = "" if about.rounds == 1 else "s"
    held = "copied into memory" if about.in_memory else "mapped"
    lines = [
        "# kiln and DGL", "",
        f"{about.host}; {about.date}; commit {about.commit}; the median of {about.rounds} round{s}, in each of which kiln and "
        "DGL 2.1.0 are measured in turn, by `cargo xtask bench --peers`. In kiln's benches of arxiv-like and products-like the "
        f"data is {held}; accuracy, first step and memory are of mapped data. How: [README.md](README.md).", "",
        "| what | kiln | DGL | ratio | target | met | of the ceiling |", "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        row, ratio, fraction = outcome.row, outcome.ratio(), outcome.ceiling_fraction
        cells = [
            row.what,
            say(row.unit, outcome.ours),
            "-" if outcome.peer is None else say(row.unit, outcome.peer),
            "-" if ratio is None or row.unit == SHARE else f"{ratio:.2f}x",
            describe_target(row),
            {True: "yes", False: "no", None: "-"}[outcome.is_met(outcomes)],
            "-" if fraction is None else f"{fraction * 100:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "What the machine can do, measured in the same run:", ""]
    return "\n".join(lines + [f"- {line}" for line in about.ceilings]) + "\n"


def describe_target(row):
    target = row.target
    text = {
        "times_peer": f">= {target.value:g}x",
        "of_peer": f"<= {target.value:g}x",
        "times_row": f">= {target.value:g}x the row `{target.row}`",
        "peer_less": f"DGL's - {target.value:g}",
        "at_most": f"<= {say(row.unit, target.value)}",
        "at_least": f">= {say(row.unit, target.value)}",
    }[target.kind]
    return text if row.least_fraction is None else f"{text}, {row.least_fraction * 100:.0f} % of the ceiling"


# In pixels: the left edge of the bars, the width of the longest bar, the height of a row, and the top of the first row.
LEFT, WIDTH, ROW_HEIGHT, TOP = 560, 360, 26, 78
# The colours are readable on white and on black.
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:17px;font-weight:600}"
    ".bar{fill:#2f81f7}.grid{stroke:#8b949e;stroke-opacity:.35}.even{stroke:#8b949e}.target{stroke:#db6d28;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){text{fill:#adbac7}}"
)


class Axis:
    """A logarithmic axis from 1, or from `least` if that is smaller, to `most`."""

    def __init__(self, least, most):
        self.least, self.most = math.log2(min(least, 1.0)), math.log2(most)

    def x(self, times):
        return LEFT + WIDTH * (math.log2(times) - self.least) / (self.most - self.least)

    def ticks(self):
        """Returns the powers of two on the axis."""
        return [2.0 ** power for power in range(math.ceil(self.least), math.floor(self.most) + 1)]


def svg(outcomes, about):
    """Returns the text of peers.svg. Rows without a result of DGL, and rows of shares, have no bar."""
    bars = [(outcome, times_better(outcome)) for outcome in outcomes if times_better(outcome) is not None]
    most = max([2.0] + [max(times, target_times(outcome) or 1.0) for outcome, times in bars])
    axis = Axis(min([1.0] + [times for _, times in bars]), most)
    bottom = TOP + ROW_HEIGHT * len(bars)
    width, height = LEFT + WIDTH + 80, bottom + 54
    place = escape(f"{about.host}, {about.date}, commit {about.commit}; logarithmic axis")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>kiln and DGL</title>\n<style>{STYLE}</style>",
        '<text class="title" x="16" y="28">kiln against DGL 2.1.0: times better</text>',
        f'<text x="16" y="50">{place}</text>',
    ]
    for times in axis.ticks():
        x, kind = axis.x(times), "even" if times == 1.0 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{times:g}x</text>')
    for i, (outcome, times) in enumerate(bars):
        lines += bar(outcome, times, TOP + ROW_HEIGHT * i, axis)
    lines.append(f'<text x="{LEFT}" y="{bottom + 40}">bar: measured; orange mark: target</text>\n</svg>')
    return "\n".join(lines) + "\n"


def bar(outcome, times, y, axis):
    """Returns the name of a row, its bar from 1x, its number, and the mark of its target."""
    start, end, base = axis.x(min(times, 1.0)), axis.x(max(times, 1.0)), y + 16
    lines = [
        f'<text x="{LEFT - 10}" y="{base}" text-anchor="end">{escape(outcome.row.what)}</text>',
        f'<rect class="bar" x="{start:.1f}" y="{y + 3}" width="{end - start:.1f}" height="16"/>',
    ]
    target = target_times(outcome)
    if target is not None:
        x = axis.x(target)
        lines.append(f'<line class="target" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 22}"/>')
        # The number is moved behind the mark, because it would overlap a mark just behind the bar.
        if end - 2 <= x < end + 50:
            end = x
    return lines + [f'<text x="{end + 6:.1f}" y="{base}">{times:.1f}x</text>']


def times_better(outcome):
    """Returns kiln's rate divided by DGL's, or DGL's time divided by kiln's."""
    ratio = outcome.ratio()
    if outcome.row.unit == SHARE or ratio is None or not 0 < ratio < math.inf:
        return None
    return ratio if outcome.row.unit in RATES else 1 / ratio


def target_times(outcome):
    """Returns the target as a multiple of DGL's performance, or None if it cannot be expressed as one."""
    target = outcome.row.target
    return {
        "times_peer": lambda: target.value,
        "of_peer": lambda: 1 / target.value,
        "at_most": lambda: None if outcome.peer is None else outcome.peer / target.value,
    }.get(target.kind, lambda: None)()
