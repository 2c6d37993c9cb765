"""The page that `benchmark.py all` writes: how to read it, a table for each benchmark, and one of quality."""

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = """# Benchmark

```
{command}
```

{warning}{machine}

{versions}

## How to read it

- **ratio** is ours over the peer's. In s and MiB less than 1 is better for codecnn, in pairs/s and steps/s more than 1.
- Ours and the peer took turns on the same machine: the ratio is the median of the turns' ratios, in brackets the least
  and the most of them, and figures are medians. Absolute figures move with all else that a machine has to do, ratios of
  turns less; where the brackets are wide, or hold 1, they say nothing certain. A ratio without brackets was measured
  once.
- With another busy process beside, PyTorch's threads, and so codecnn's, wait for each other more than those of ONNX
  Runtime and OpenVINO do, which no turns make up for: look at the load, and then at CPU time with `--threads 1`.
- Figures of two machines, of other versions or of other sizes are not comparable, and ratios of two machines need not
  be alike.
- Inference: the same weights, picture, float32 and number of threads, each run a process of its own, checked to give
  the same picture to 1e-4 of full scale. Loading, compiling and a first pass are not counted. Peers take the picture in
  one piece. Memory is the peak of the process, Python and PyTorch included in all of them: a program of ONNX Runtime or
  OpenVINO alone would take less.
- Training: the plain loop does less (no averaged weights, no clipping, 8-bit crops from PNG files).
- Labels against an encoder are two different jobs, the time of one in units of the other. Those against NumPy are the
  same labels; both references also predict in plain NumPy, so it is not the transform alone that is compared.
- Integer networks are compared with codecnn's own float ones.
- Rows without a peer say what a thing takes. For the sequence it is memory that must not grow: the ratio should be 1.
"""

QUALITY = """## Quality

Luma, in dB of PSNR and % of BD-rate. Ours are the weights that come with the package, by the test that their cards
describe; published figures are those of the papers' abstracts. They are not comparable: encoder, pictures, settings,
input planes and anchors are others. They stand here for the size of what there is to gain.
"""

ANCHORS = (
    (
        "residual block fusion, a low-complexity filter for JVET's NNVC",
        "16.6",
        "-4.77 AI, -5.46 RA",
        "[Residual Block Fusion in Low Complexity Neural Network-Based In-loop Filtering for Video Compression]"
        "(https://openreview.net/forum?id=HhPFJUJaam)",
    ),
    (
        "all neural tools of NNVC-4.0, intra prediction included",
        "–",
        "-10.63 AI, -11.94 RA",
        "[arXiv:2309.05846](https://arxiv.org/abs/2309.05846)",
    ),
    (
        "ADCNN, in place of the codec's own filters",
        "–",
        "-6.54 AI, -2.81 RA",
        "[IEEE Access 7 (2019), 145214](https://doi.org/10.1109/ACCESS.2019.2944473)",
    ),
    (
        "QP-variable CNN for intra coding",
        "–",
        "-4.03 AI",
        "[arXiv:2012.15003](https://arxiv.org/abs/2012.15003)",
    ),
)
"""Published figures: what, kMAC/pixel, BD-rate of luma in %, source."""


def document(results: Sequence[Mapping[str, Any]], cards: Mapping[str, Mapping[str, Any]], *, quick: bool) -> str:
    """The page in Markdown of the benchmarks' results and of the cards of weights, as `zoo_cards` gives them.

    A result has its words, status, rows, date, load, machine, versions and code; one with a status other than 0 is said
    to have failed. All results are of one machine, versions and code.
    """
    words = "python tools/benchmark.py all -o docs/benchmark.md" + (" --quick" if quick else "")
    warning = "**Made with `--quick`: sizes that only show that everything runs. The figures say nothing.**\n\n"
    head = HEAD.format(
        command=words, warning=warning if quick else "", machine=_place(results), versions=_versions(results[0])
    )
    speed = []
    for result in results:
        speed += [f"`python tools/benchmark.py {result['words']}`", ""]
        if result["status"]:
            speed += [f"**Failed with status {result['status']}.**", ""]
            continue
        speed += ["| what | ours | peer | ratio |", "|---|---:|---:|---:|"]
        speed += [*(f"| {_cells(row)} |" for row in result["rows"]), ""]
    return "\n".join([head, "## Speed", "", *speed, QUALITY, *quality(cards)]) + "\n"


def quality(cards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines of the table of quality: the weights of `cards`, then what others published."""
    lines = ["| what | kMAC/pixel | gain, dB | BD-rate, % | source |", "|---|---:|---:|---:|---|"]
    for name, card in cards.items():
        test = card.get("test") or {}
        gain = ((test.get("gain_db") or {}).get("y") or {}).get("mean")
        rate = (test.get("bd_rate") or {}).get("y")
        gain, rate = ("–" if value is None else f"{value:+.{digits}f}" for value, digits in ((gain, 4), (rate, 2)))
        source = f"`codecnn/zoo/{name}.json`" if test else "no test on its card"
        lines.append(f"| `{name}` | {card['kmac_per_pixel']:.1f} | {gain} | {rate} | {source} |")
    lines += [f"| {what} | {cost} | – | {rate} | {source} |" for what, cost, rate, source in ANCHORS]
    return lines


def _cells(row: Mapping[str, Any]) -> str:
    """What, ours, peer and ratio of a row."""
    unit = row["unit"]
    peer, ratio = row["peer"] or "–", "–"
    if "ratio" in row:
        peer = f"{_figure(row['theirs'])} {unit}, {row['peer']}"
        ratio = _figure(row["ratio"])
        if row["turns"] > 1:
            ratio += f" ({_figure(row['least'])} to {_figure(row['most'])})"
    elif row["note"]:
        peer += f": {row['note']}"
    return " | ".join((row["what"], f"{_figure(row['ours'])} {unit}", peer, ratio))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _place(results: Sequence[Mapping[str, Any]]) -> str:
    """Machine, days and load of the runs that results are of."""
    machine = results[0]["machine"]
    dates = sorted({result["date"] for result in results})
    loads = sorted({f"{result['load']:.2f}" for result in results}, key=float)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}; load before the run "
        f"{' to '.join(dict.fromkeys((loads[0], loads[-1])))}."
    )


def _versions(result: Mapping[str, Any]) -> str:
    found = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"{found}; code {result['code']}."
