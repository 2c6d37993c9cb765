"""What the test models of HEVC (HM) and VVC (VTM) have in common: their command line and their log.

Both read configuration files given by -c and then --Name=value, the later of two winning, and both end at an option
that they do not know. Names come and go between versions, so a setting that only some have is given where the
program's own help lists it.
"""

import itertools
import re
from collections.abc import Mapping

from codecnn.codec.base import CTC_FROM_CFG, CodecSettings, CodedPicture, ctc_intra_period
from codecnn.codec.encoders.limits import check_params, check_program_source
from codecnn.codec.encoders.programs import Job
from codecnn.errors import ConfigError, EncoderError

RECONSTRUCTION = "reconstruction.yuv"
"""The encoder's own pictures, which the decoded ones must equal."""

_ADAPTATIONS = """
IntraQPOffset MaxDeltaQP DeltaQpRD RateControl AdaptiveQP PerceptQPA LumaLevelToDeltaQPMode TemporalFilter BIM
"""
CONSTANT_QP = dict.fromkeys(_ADAPTATIONS.split(), "0")
"""No intra offset (-3 in the random access files), search or adaptation of QP, temporal pre-filter or importance map.

Names of VTM source/App/EncoderApp/EncAppCfg.cpp and HM source/App/TAppEncoder/TAppEncCfg.cpp.
"""

EVERY_PICTURE = {"FrameSkip": "0", "TemporalSubsampleRatio": "1", "ConformanceWindowMode": "1"}
"""VTM's cfg/encoder_intra_vtm.cfg codes every eighth picture; mode 1 pads to whole minimum CUs, and crops again."""

DEBLOCKING_OFF = {"DeblockingFilterDisable": "1", "LoopFilterDisable": "1"}
"""The newer and the older name of one option: VTM 15 has the first, HM 16 and VTM 10 the second."""

_PICTURE = re.compile(
    r"^POC +(?P<poc>-?\d+) (?:LId: +\d+ )?TId: *\d+ \( *(?:\w+, )?(?P<type>[IPBipb])-SLICE, (?:nQP -?\d+ )?"
    r"QP +(?P<qp>-?\d+)(?:, TF \d+)? *\) +(?P<bits>\d+) bits +"
    r"\[Y +(?P<y>\S+) dB +U +(?P<u>\S+) dB +V +(?P<v>\S+) dB\](?P<rest>.*)$",
    re.MULTILINE,
)
"""The line a picture: xCalculateAddPSNR in VTM source/Lib/EncoderLib/EncGOP.cpp, HM source/Lib/TLibEncoder/TEncGOP.cpp
and vvenc source/Lib/EncoderLib/EncGOP.cpp. LId and the NAL unit type are VTM's and vvenc's, nQP is HM's and that of
VTM before 7, TF vvenc's of a picture with a temporal pre-filter; a slice that nothing refers to has a small letter."""


def model_cfg(suffix: str) -> dict[str, str]:
    """The configuration file for each configuration among the sources of a test model."""
    kinds = {"ai": "intra", "ra": "randomaccess", "ldb": "lowdelay"}
    return {configuration: f"cfg/encoder_{kind}_{suffix}.cfg" for configuration, kind in kinds.items()}


def model_arguments(job: Job, own: Mapping[str, str], loop_tools: Mapping[str, str], bitstream: str) -> list[str]:
    """The arguments of VTM's or HM's encoder; a pure function.

    `own` are the settings only this model has, `loop_tools` those that switch off its filters other than deblocking.
    Raises ConfigError or FormatError for what a test model does not take.
    """
    settings, source_format = job.settings, job.format
    check_program_source(source_format, settings)
    if settings.preset != CodecSettings.preset:
        raise ConfigError(f"a test model has no preset {settings.preset!r}: its configuration files stand in for it")
    wanted = {**CONSTANT_QP, **EVERY_PICTURE}
    if settings.ctc:
        wanted = {name: value for name, value in wanted.items() if name not in CTC_FROM_CFG}
        if settings.configuration == "ra":
            wanted["IntraPeriod"] = str(ctc_intra_period(source_format))
    if not settings.loop_filters:
        if job.options.isdisjoint(DEBLOCKING_OFF):
            raise EncoderError(f"the encoder lists none of {', '.join(DEBLOCKING_OFF)}: deblocking cannot be disabled")
        wanted |= {**DEBLOCKING_OFF, **loop_tools}
    values = {
        "SourceWidth": source_format.width,
        "SourceHeight": source_format.height,
        # Versions differ in whether a fraction is allowed; at constant QP the rate changes no sample.
        "FrameRate": max(1, round(source_format.fps or 30)),
        "FramesToBeEncoded": job.frames,
        "InputBitDepth": source_format.bit_depth,
        "InternalBitDepth": settings.internal_bit_depth,
        "OutputBitDepth": settings.internal_bit_depth,
        "InputChromaFormat": source_format.chroma,
        "QP": settings.qp,
        **{name: value for name, value in wanted.items() if name in job.options},
        **own,
        **check_params(settings.params, values=r"[\w .,:+/-]+"),
        "InputFile": job.source,
        "BitstreamFile": bitstream,
        "ReconFile": RECONSTRUCTION,
        "SEIDecodedPictureHash": 1,
    }
    return [
        *(part for path in job.cfg for part in ("-c", path)),
        *(f"--{name}={text}" for name, text in values.items()),
    ]


def parse_log(text: str, planes: int | None = None) -> tuple[CodedPicture, ...]:
    """The pictures of a log, in output order, with the PSNR of their planes (dB, peak 255·2^(b-8)).

    Every log states three PSNRs, those of 4:0:0 too. `planes` says how many there are; None takes pictures with hashes
    only, one a plane. HM counts POC from the last IDR picture; here a sequence that starts again at 0 follows the one
    before it. Raises EncoderError where two pictures have one POC, or the hashes are not one a plane.
    """
    pictures: list[CodedPicture] = []
    first = 0
    for match in _PICTURE.finditer(text.replace("\r", "\n")):
        if int(match["poc"]) == 0 and any(picture.poc == first for picture in pictures):
            first = len(pictures)
        md5 = re.search(r"\[MD5:([0-9a-f,]+)\]", match["rest"])
        hashes = tuple(md5[1].split(",")) if md5 else ()
        if planes is None and not hashes:
            continue
        count = planes or len(hashes)
        if hashes and len(hashes) != count:
            raise EncoderError(f"the encoder's log states {len(hashes)} MD5 for {planes} planes of POC {match['poc']}")
        psnr = [float(match[plane]) if index < count else None for index, plane in enumerate("yuv")]
        pictures.append(
            CodedPicture(
                poc=first + int(match["poc"]),
                slice_type=match["type"].upper(),
                qp=int(match["qp"]),
                bits=int(match["bits"]),
                psnr_y=float(match["y"]),
                psnr_u=psnr[1],
                psnr_v=psnr[2],
                md5=hashes,
            )
        )
    pictures.sort(key=lambda picture: picture.poc)
    for picture, following in itertools.pairwise(pictures):
        if picture.poc == following.poc:
            raise EncoderError(f"the encoder's log lists POC {picture.poc} twice")
    return tuple(pictures)
