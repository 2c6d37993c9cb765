"""Streams without and with each coding tool that libvvenc can switch off and on.

Both streams must parse to the last bin of every slice, contain a partition, and decode in ffmpeg with the picture
hashes of the encoder. The stream with the tool must use it: the test counts syntax elements with the parser in plain
Python. Such small pictures use no ALF; the golden streams do.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import stream_table
from codecnn.pictures.files import ffmpeg_path, run
from codecnn.vvc.syntax import read_pictures
from tests.vvc.syntax.test_partition import ALL_INTRA, LOW_DELAY, RANDOM_ACCESS, assert_partition, code

WIDTH, HEIGHT = 136, 104
BASES = {"ai": (ALL_INTRA, 1), "ra": (RANDOM_ACCESS, 9), "ldb": (LOW_DELAY, 5)}

_TABLE = """
ai MIP=0 MIP=1 sps_mip_enabled_flag intra_mip_flag MIP
ai ISP=0 ISP=1 sps_isp_enabled_flag intra_subpartitions_mode_flag ISP
ai MRL=0 MRL=1 sps_mrl_enabled_flag intra_luma_ref_idx MRL
ai LMChroma=0 LMChroma=1 sps_cclm_enabled_flag cclm_mode_flag CCLM
ai LFNST=0 LFNST=1 sps_lfnst_enabled_flag lfnst_idx LFNST
ai MTS=0 MTS=1 sps_explicit_mts_intra_enabled_flag mts_idx MTS
ai MTSImplicit=0 MTSImplicit=1 sps_mts_enabled_flag - implicit MTS
ai Log2MaxTbSize=5 Log2MaxTbSize=6 max_tb_log2_size_y - transform of 64
ai JointCbCr=0 JointCbCr=1 sps_joint_cbcr_enabled_flag tu_joint_cbcr_residual_flag joint Cb-Cr
ai TransformSkip=0:BDPCM=0 TransformSkip=1:BDPCM=0 sps_transform_skip_enabled_flag transform_skip_flag transform skip
ai TransformSkip=1:BDPCM=0 TransformSkip=1:BDPCM=1 sps_bdpcm_enabled_flag intra_bdpcm_luma_flag BDPCM
ai IBC=0 IBC=1 sps_ibc_enabled_flag pred_mode_ibc_flag IBC
ai DualITree=0 DualITree=1 sps_qtbtt_dual_tree_intra_flag - dual tree
ai DepQuant=0 DepQuant=1:SignHideFlag=0 sps_dep_quant_enabled_flag - dependent quantization
ai DepQuant=0:SignHideFlag=0 DepQuant=0:SignHideFlag=1 sps_sign_data_hiding_enabled_flag - sign hiding
ai SAO=0 SAO=1 sps_sao_enabled_flag sao_type_idx SAO
ai ALF=0:CCALF=0 ALF=1:CCALF=0 sps_alf_enabled_flag - ALF
ai ALF=1:CCALF=0 ALF=1:CCALF=1 sps_ccalf_enabled_flag - CC-ALF
ai WaveFrontSynchro=0 WaveFrontSynchro=1 sps_entropy_coding_sync_enabled_flag - wavefronts
ldb WaveFrontSynchro=0 WaveFrontSynchro=1 sps_entropy_coding_sync_enabled_flag - wavefronts of B
ai Level=5.1 Level=5.1:Tiles=2x2 - - tiles
ra Level=5.1 Level=5.1:Tiles=2x1 - - tiles of B
ai ChromaFormatIDC=400 ChromaFormatIDC=420 sps_chroma_format_idc tu_cb_coded_flag chroma
ra MTS=0 MTS=3 sps_explicit_mts_intra_enabled_flag mts_idx MTS of inter
ra SBT=0 SBT=1 sps_sbt_enabled_flag cu_sbt_flag SBT
ra CIIP=0:Geo=1 CIIP=1:Geo=1 sps_ciip_enabled_flag ciip_flag CIIP
ra BCW=0 BCW=1 sps_bcw_enabled_flag bcw_idx BCW
ldb BCW=0 BCW=1 sps_bcw_enabled_flag - BCW of low delay
ra Geo=0:CIIP=0 Geo=1:CIIP=0 sps_gpm_enabled_flag regular_merge_flag GPM
ra MMVD=0 MMVD=1 sps_mmvd_enabled_flag mmvd_merge_flag MMVD
ra SMVD=0 SMVD=1 sps_smvd_enabled_flag sym_mvd_flag SMVD
ra AMVR=0 AMVR=5 sps_amvr_enabled_flag amvr_flag AMVR
ra Affine=0 Affine=2 sps_affine_enabled_flag inter_affine_flag affine
ra SbTMVP=0:Affine=0 SbTMVP=1:Affine=0 sps_sbtmvp_enabled_flag merge_subblock_flag SbTMVP
ra TMVPMode=0 TMVPMode=1 sps_temporal_mvp_enabled_flag - TMVP
ra MaxNumMergeCand=1 MaxNumMergeCand=6 max_num_merge_cand merge_idx merge candidates
ra IBC=0 IBC=1 sps_ibc_enabled_flag pred_mode_ibc_flag IBC in B
"""
TOOLS = {name: fields for *fields, name in (line.split(maxsplit=5) for line in _TABLE.strip().splitlines())}
"""Tests by tool: configuration, parameters without and with the tool, SPS element that enables it, and syntax element
that uses it ("-" if there is none)."""


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Write a clip of a moving and rotating texture with letters that becomes brighter, 4:2:0, 8 bit."""
    rng = np.random.default_rng(4)
    texture = rng.normal(0, 14, (HEIGHT, WIDTH))
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    path = tmp_path_factory.mktemp("clip") / "clip.yuv"
    with path.open("wb") as file:
        for t in range(9):
            turned = x * np.cos(t / 40) + y * np.sin(t / 40)
            luma = 110 + 40 * np.sin(turned / 11) + np.roll(texture, (t, 2 * t), (0, 1)) + 3 * t
            letters = (((x + 3 * t) % 16 < 5) ^ ((y + t) % 24 < 7)) & (x > WIDTH // 2)
            luma = np.where(letters, 225, luma)
            cb = 128 + 25 * np.sin(turned / 17) + 8 * letters
            cr = 128 - 20 * np.sin(turned / 17) + 0.2 * (luma - 128)
            for plane in (luma, cb[::2, ::2], cr[::2, ::2]):
                file.write(plane.clip(0, 255).astype(np.uint8).tobytes())
    return path


def encode(clip: Path, output: Path, configuration: str, params: str) -> Path:
    base, pictures = BASES[configuration]
    params = f"SEIDecodedPictureHash=md5:{base}:{params}"
    return code(clip, (WIDTH, HEIGHT), output, params, "-frames:v", str(pictures), qp=27)


def used_elements(stream: Path) -> dict[str, list[int]]:
    """Count the bins of each context coded syntax element of a stream, and those that are 1."""
    program = Path(__file__).parents[2] / "helpers" / "vvc_elements.py"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    completed = subprocess.run(
        [sys.executable, program, stream], check=True, capture_output=True, env=environment, text=True
    )
    return dict(json.loads(completed.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_streams_without_and_with_a_tool(clip, tmp_path, tool):
    configuration, params_without, params_with, flag, element = TOOLS[tool]
    flags, elements = [], []
    for number, params in enumerate((params_without, params_with)):
        stream = encode(clip, tmp_path / f"{number}.266", configuration, params)
        decode = [ffmpeg_path(), "-v", "error", "-xerror", "-err_detect", "crccheck+explode", "-i", str(stream)]
        run([*decode, "-f", "null", "-"], what=f"decoding {params}")
        assert_partition(stream_table(stream), WIDTH, HEIGHT, BASES[configuration][1])
        first = next(read_pictures(stream.read_bytes()))
        flags.append(first.pps.tiles.num_columns > 1 if flag == "-" else vars(first.sps)[flag])
        elements.append(used_elements(stream))
    assert flags[0] < flags[1]
    if element == "regular_merge_flag":
        # Without CIIP, a merge unit that is not regular uses geometric partitions.
        assert element not in elements[0]
        assert elements[1][element][1] < elements[1][element][0]
    elif element != "-":
        assert elements[0].get(element, [0, 0])[1] == 0
        assert elements[1][element][1] > 0
