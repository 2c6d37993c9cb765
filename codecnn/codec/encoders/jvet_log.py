"""The log that VTM, HM and vvenc have in common: its pictures, and its text without times and machine names."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from codecnn.base.errors import EncoderError
from codecnn.codec.base import CodedPicture

_PICTURE = re.compile(
    r"^POC +(?P<poc>-?\d+) (?:LId: +\d+ )?TId: *\d+ \( *(?:\w+, )?(?P<type>[IPBipb])-SLICE, (?:nQP -?\d+ )?"
    r"QP +(?P<qp>-?\d+)(?:, TF \d+)? *\) +(?P<bits>\d+) bits +"
    r"\[Y +(?P<y>\S+) dB +U +(?P<u>\S+) dB +V +(?P<v>\S+) dB\](?P<rest>.*)$",
    re.MULTILINE,
)
"""Log line of one picture.

It is written by xCalculateAddPSNR in VTM source/Lib/EncoderLib/EncGOP.cpp, HM source/Lib/TLibEncoder/TEncGOP.cpp and
vvenc source/Lib/EncoderLib/EncGOP.cpp. VTM and vvenc print LId and the NAL unit type, HM and VTM before 7 print nQP,
and vvenc prints TF for a picture with a temporal pre-filter. A slice that is not used for reference has a lower-case
type.
"""

_MACHINE_DEPENDENT = re.compile(
    r"\bFile\b|started @|finished @|\bsec\.|Encoder Version|SIMD|Threads|PARALLEL PROCESSING|\bstats\b", re.IGNORECASE
)
"""Log lines of an encoder program that depend on machine, time or paths."""


def parse_log(text: str, planes: int | None = None) -> tuple[CodedPicture, ...]:
    """Parse the pictures of a log.

    HM counts POC from the last IDR picture; a sequence that starts again at 0 is appended to the one before it. Leading
    pictures of an IDR picture have negative POCs.

    Args:
        text: The log.
        planes: Number of planes; every log states three PSNRs, also for 4:0:0. None takes one plane per MD5, and
            skips pictures without MD5.

    Returns:
        The pictures in output order, with the PSNR of their planes (dB, peak 255 * 2^(bit_depth - 8)).

    Raises:
        EncoderError: Two pictures have the same POC, or the number of MD5s is not the number of planes.
    """
    periods: list[list[CodedPicture]] = [[]]
    for match in _PICTURE.finditer(text.replace("\r", "\n")):
        if int(match["poc"]) == 0 and any(picture.poc == 0 for picture in periods[-1]):
            periods.append([])
        md5 = re.search(r"\[MD5:([0-9a-f,]+)\]", match["rest"])
        hashes = tuple(md5[1].split(",")) if md5 else ()
        if planes is None and not hashes:
            continue
        count = planes or len(hashes)
        if hashes and len(hashes) != count:
            raise EncoderError(f"the encoder's log states {len(hashes)} MD5 for {planes} planes of POC {match['poc']}")
        psnr = [float(match[plane]) if index < count else None for index, plane in enumerate("yuv")]
        periods[-1].append(
            CodedPicture(
                poc=int(match["poc"]),
                slice_type=match["type"].upper(),
                qp=int(match["qp"]),
                bits=int(match["bits"]),
                psnr_y=float(match["y"]),
                psnr_u=psnr[1],
                psnr_v=psnr[2],
                md5=hashes,
            )
        )
    pictures: list[CodedPicture] = []
    for period in periods:
        first = len(pictures) - min((picture.poc for picture in period if picture.poc < 0), default=0)
        pictures += [replace(picture, poc=first + picture.poc) for picture in period]
    pictures.sort(key=lambda picture: picture.poc)
    for picture, following in itertools.pairwise(pictures):
        if picture.poc == following.poc:
            raise EncoderError(f"the encoder's log lists POC {picture.poc} twice")
    return tuple(pictures)


def normalise_library_log(stdout: str, stderr: str) -> str:
    """Return the configuration and picture lines of libvvenc without times, addresses and thread counts."""
    details = [line for line in stderr.splitlines() if re.search(r"vvenc \[\w+\]:|libvvenc version", line)]
    details = [re.sub(r"^\[libvvenc @ \w+\] ", "", line) for line in details]
    details = [line.rstrip() for line in details if not re.search(r"Threads|PARALLEL PROCESSING", line)]
    pictures = [re.sub(r"\[ET\s+\d+ \] ", "", line) for line in stdout.splitlines() if line.startswith("POC")]
    return "\n".join([*details, *pictures]) + "\n"


def normalise_program_log(identity: str, stdout: str, folders: Sequence[str]) -> str:
    """Return the identity of an encoder program and its log without lines that depend on the machine.

    Args:
        identity: Identity of the encoder, the first line of the result.
        stdout: The log.
        folders: Folders of this machine; lines that contain one of them are removed.
    """
    lines = [line.rstrip() for line in stdout.replace("\r", "\n").splitlines()]
    kept = [
        line
        for line in lines
        if line and not _MACHINE_DEPENDENT.search(line) and not any(folder in line for folder in folders)
    ]
    kept = [re.sub(r"\[ET +[\d.]+ *\] ?", "", line) for line in kept]
    return "\n".join([identity, *kept]) + "\n"
