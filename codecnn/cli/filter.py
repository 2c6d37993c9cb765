"""The command that filters decoded pictures."""

from typing import Any

from codecnn.api import filtering
from codecnn.api.filter_options import FilterOptions
from codecnn.api.filtering import FilteredFile
from codecnn.cli.commands import command
from codecnn.cli.console import err, print_facts, print_json


@command(
    "filter", filtering.filter, "codecnn filter -i video.mp4 -o better.mkv", threads=True, trust=True, resumable=True
)
def show_filtered(options: FilterOptions, result: FilteredFile, as_json: bool) -> None:
    """Print notes, a closing line, and what was decided."""
    for note in (*result.notes, _closing_line(result)):
        err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        facts: dict[str, Any] = {"output": str(result.output), "pictures": result.pictures}
        facts |= {} if result.runtime is None else {"runtime": result.runtime.as_json()}
        facts |= {"weights": result.weights, "reason": result.reason, "qps": list(result.qps)}
        facts |= {"qp_source": result.qp_source, "seconds_per_picture": result.seconds_per_picture}
        print_json(facts if result.decisions is None else facts | {"decisions": result.decisions})
    elif result.decisions is not None and str(options.output) != "-":
        print_facts(_summary(result.decisions), as_json)


def _closing_line(result: FilteredFile) -> str:
    """Say how many pictures were filtered, with which weights and QPs, how fast, and into which file."""
    parts = [f"{result.pictures} picture{'' if result.pictures == 1 else 's'}"]
    if result.weights is not None:
        parts.append(f"{result.weights} ({result.reason or 'named by -m'})")
    if result.qps:
        low, high = min(result.qps), max(result.qps)
        source = "" if result.qp_source is None else f" ({result.qp_source})"
        parts.append(f"QP {low}{source}" if low == high else f"QP {low} to {high}{source}")
    if result.seconds_per_picture is not None:
        parts.append(f"{result.seconds_per_picture:.2g} s a picture")
    return f"{', '.join(parts)}: {'standard output' if str(result.output) == '-' else result.output}"


def _summary(counts: dict[str, Any]) -> dict[str, Any]:
    """Format the counts of the decisions as facts for the terminal."""
    pictures = counts["pictures"]
    change = counts["rd_cost_after"] / counts["rd_cost_before"] - 1 if counts["rd_cost_before"] else 0.0
    psnrs = {
        f"PSNR {name.upper()}": f"{before:.2f} to {after:.2f} dB ({after - before:+.3f})"
        for name, before in counts["psnr_before"].items()
        if before is not None and (after := counts["psnr_after"][name]) is not None
    }
    return {
        "pictures": f"{pictures['off']} off, {pictures['on']} on, {pictures['ctu']} by CTU",
        "CTUs on": ", ".join(f"{name.upper()} {share:.1%}" for name, share in counts["ctus_on"].items()),
        "QP offsets": ", ".join(f"{offset}: {count}" for offset, count in counts["qp_offsets"].items()) or "none",
        "bits": f"{counts['bits']:.0f}",
        **psnrs,
        "RD cost": f"{change:+.3%}",
        "lowers the RD cost": "yes" if counts["pays"] else "no: an encoder would disable the filter for this sequence",
    }
