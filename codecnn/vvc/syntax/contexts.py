"""Context variables: initial values and adaptation rates (H.266 clause 9.3.2.2, tables 51 to 126).

A context variable is one adaptive probability. A syntax element has as many as ctxInc (clause 9.3.4.2) has values, so
that cases with different statistics, as neighbours or earlier levels indicate them, do not share a probability.
"""

import numpy as np
import numpy.typing as npt

_COLUMNS: tuple[list[int], ...] = ([], [], [], [])


def _variables(*rows: str) -> int:
    """Append the context variables of one syntax element to the table.

    Args:
        *rows: Rows of the element's table in the standard: initValue for initType 0 (I slices), 1 (P) and 2 (B), then
            shiftIdx. The value 35 (equiprobable) stands where slices of a type do not have the element.

    Returns:
        Index of the first variable, from which ctxInc counts.
    """
    first = len(_COLUMNS[0])
    for column, row in zip(_COLUMNS, rows, strict=True):
        column += map(int, row.split())
    return first


ALF_CTB_FLAG = _variables(
    "62 39 39 54 39 39 31 39 39",
    "13 23 46 4 61 54 19 46 54",
    "33 52 46 25 61 54 25 61 54",
    "0 0 0 4 0 0 1 0 0",
)
ALF_USE_APS_FLAG = _variables("46", "46", "46", "0")
ALF_CTB_CC_CB_IDC = _variables("18 30 31", "18 21 38", "25 35 38", "4 1 4")
ALF_CTB_CC_CR_IDC = _variables("18 30 31", "18 21 38", "25 28 38", "4 1 4")
ALF_CTB_FILTER_ALT_IDX = _variables("11 11", "20 12", "11 26", "0 0")
SAO_MERGE_FLAG = _variables("60", "60", "2", "0")
SAO_TYPE_IDX = _variables("13", "5", "2", "4")
SPLIT_CU_FLAG = _variables(
    "19 28 38 27 29 38 20 30 31",
    "11 35 53 12 6 30 13 15 31",
    "18 27 15 18 28 45 26 7 23",
    "12 13 8 8 13 12 5 9 9",
)
SPLIT_QT_FLAG = _variables("27 6 15 25 19 37", "20 14 23 18 19 6", "26 36 38 18 34 21", "0 8 8 12 12 8")
MTT_SPLIT_CU_VERTICAL_FLAG = _variables("43 42 29 27 44", "43 35 37 34 52", "43 42 37 42 44", "9 8 9 8 5")
MTT_SPLIT_CU_BINARY_FLAG = _variables("36 45 36 45", "43 37 21 22", "28 29 28 29", "12 13 12 13")
NON_INTER_FLAG = _variables("35 35", "25 12", "25 20", "1 0")
CU_SKIP_FLAG = _variables("0 26 28", "57 59 45", "57 60 46", "5 4 8")
PRED_MODE_IBC_FLAG = _variables("17 42 36", "0 57 44", "0 43 45", "1 5 8")
PRED_MODE_FLAG = _variables("35 35", "40 35", "40 35", "5 1")
INTRA_BDPCM_LUMA_FLAG = _variables("19", "40", "19", "1")
INTRA_BDPCM_LUMA_DIR_FLAG = _variables("35", "36", "21", "4")
INTRA_MIP_FLAG = _variables("33 49 50 25", "41 57 58 26", "56 57 50 26", "9 10 9 6")
INTRA_LUMA_REF_IDX = _variables("25 60", "25 58", "25 59", "5 8")
INTRA_SUBPARTITIONS_MODE_FLAG = _variables("33", "33", "33", "9")
INTRA_SUBPARTITIONS_SPLIT_FLAG = _variables("43", "36", "43", "2")
INTRA_LUMA_MPM_FLAG = _variables("45", "36", "44", "6")
INTRA_LUMA_NOT_PLANAR_FLAG = _variables("13 28", "12 20", "13 6", "1 5")
INTRA_BDPCM_CHROMA_FLAG = _variables("1", "0", "0", "1")
INTRA_BDPCM_CHROMA_DIR_FLAG = _variables("27", "13", "28", "0")
CCLM_MODE_FLAG = _variables("59", "34", "26", "4")
CCLM_MODE_IDX = _variables("27", "27", "27", "9")
INTRA_CHROMA_PRED_MODE = _variables("34", "25", "25", "5")
GENERAL_MERGE_FLAG = _variables("26", "21", "6", "4")
INTER_PRED_IDC = _variables("35 35 35 35 35 35", "7 6 5 12 4 40", "14 13 5 4 3 40", "0 0 1 4 4 0")
INTER_AFFINE_FLAG = _variables("35 35 35", "12 13 14", "19 13 6", "4 0 0")
CU_AFFINE_TYPE_FLAG = _variables("35", "35", "35", "4")
SYM_MVD_FLAG = _variables("35", "28", "28", "5")
REF_IDX = _variables("35 35", "20 35", "5 35", "0 4")
MVP_FLAG = _variables("42", "34", "34", "12")
AMVR_FLAG = _variables("35 35", "59 58", "59 50", "0 0")
AMVR_PRECISION_IDX = _variables("35 34 35", "60 48 60", "38 26 60", "4 5 0")
BCW_IDX = _variables("35", "4", "5", "1")
CU_CODED_FLAG = _variables("6", "5", "12", "4")
CU_SBT_FLAG = _variables("35 35", "56 57", "41 57", "1 5")
CU_SBT_QUAD_FLAG = _variables("35", "42", "42", "10")
CU_SBT_HORIZONTAL_FLAG = _variables("35 35 35", "20 43 12", "35 51 27", "8 4 1")
CU_SBT_POS_FLAG = _variables("35", "28", "28", "13")
LFNST_IDX = _variables("28 52 42", "37 45 27", "52 37 27", "9 9 10")
MTS_IDX = _variables("29 0 28 0", "45 40 27 0", "45 25 27 0", "8 0 9 0")
REGULAR_MERGE_FLAG = _variables("35 35", "38 7", "46 15", "5 5")
MMVD_MERGE_FLAG = _variables("35", "26", "25", "4")
MMVD_CAND_FLAG = _variables("35", "43", "43", "10")
MMVD_DISTANCE_IDX = _variables("35", "60", "59", "0")
CIIP_FLAG = _variables("35", "57", "57", "1")
MERGE_SUBBLOCK_FLAG = _variables("35 35 35", "48 57 44", "25 58 45", "4 4 4")
MERGE_SUBBLOCK_IDX = _variables("35", "5", "4", "0")
MERGE_IDX = _variables("34", "20", "18", "4")
ABS_MVD_GREATER0_FLAG = _variables("14", "44", "51", "9")
ABS_MVD_GREATER1_FLAG = _variables("45", "43", "36", "5")
TU_Y_CODED_FLAG = _variables("15 12 5 7", "23 5 20 7", "15 6 5 14", "5 1 8 9")
TU_CB_CODED_FLAG = _variables("12 21", "25 28", "25 37", "5 0")
TU_CR_CODED_FLAG = _variables("33 28 36", "25 29 45", "9 36 45", "2 1 0")
CU_QP_DELTA_ABS = _variables("35 35", "35 35", "35 35", "8 8")
CU_CHROMA_QP_OFFSET_FLAG = _variables("35", "35", "35", "8")
CU_CHROMA_QP_OFFSET_IDX = _variables("35", "35", "35", "8")
TRANSFORM_SKIP_FLAG = _variables("25 9", "25 9", "25 17", "1 1")
PRED_MODE_PLT_FLAG = _variables("25", "0", "17", "1")
PALETTE_TRANSPOSE_FLAG = _variables("42", "42", "35", "5")
COPY_ABOVE_PALETTE_INDICES_FLAG = _variables("42", "59", "50", "9")
RUN_COPY_FLAG_INDEX = _variables("50 37 45 30 46", "51 30 30 38 23", "58 45 45 30 38", "9 6 9 10 5")
RUN_COPY_FLAG_ABOVE = _variables("45 38 46", "38 53 46", "45 38 46", "0 9 5")
CU_ACT_ENABLED_FLAG = _variables("52", "46", "46", "1")
TU_JOINT_CBCR_RESIDUAL_FLAG = _variables("12 21 35", "27 36 45", "42 43 52", "1 1 0")
LAST_SIG_COEFF_X_PREFIX = _variables(
    "13 5 4 21 14 4 6 14 21 11 14 7 14 5 11 21 30 22 13 42 12 4 3",
    "6 13 12 6 6 12 14 14 13 12 29 7 6 13 36 28 14 13 5 26 12 4 18",
    "6 6 12 14 6 4 14 7 6 4 29 7 6 6 12 28 7 13 13 35 19 5 4",
    "8 5 4 5 4 4 5 4 1 0 4 1 0 0 0 0 1 0 0 0 5 4 4",
)
LAST_SIG_COEFF_Y_PREFIX = _variables(
    "13 5 4 6 13 11 14 6 5 3 14 22 6 4 3 6 22 29 20 34 12 4 3",
    "5 5 12 6 6 4 6 14 5 12 14 7 13 5 13 21 14 20 12 34 11 4 18",
    "5 5 20 13 13 19 21 6 12 12 14 14 5 4 12 13 7 13 12 41 11 5 27",
    "8 5 8 5 5 4 5 5 4 0 5 4 1 0 0 1 4 0 0 0 6 5 5",
)
SB_CODED_FLAG = _variables("18 31 25 15 18 20 38", "25 30 25 45 18 12 29", "25 45 25 14 18 35 45", "8 5 5 8 5 8 8")
SIG_COEFF_FLAG = _variables(
    """
    25 19 28 14 25 20 29 30 19 37 30 38 11 38 46 54 27 39 39 39 44 39 39 39 18 39 39 39 27 39 39 39
    0 39 39 39 25 27 28 37 34 53 53 46 19 46 38 39 52 39 39 39 11 39 39 39 19 39 39 39 25 28 38
    """,
    """
    17 41 42 29 25 49 43 37 33 58 51 30 19 38 38 46 34 54 54 39 6 39 39 39 19 39 54 39 19 39 39 39
    56 39 39 39 17 34 35 21 41 59 60 38 35 45 53 54 44 39 39 39 34 38 62 39 26 39 39 39 40 35 44
    """,
    """
    17 41 49 36 1 49 50 37 48 51 58 45 26 45 53 46 49 54 61 39 35 39 39 39 19 54 39 39 50 39 39 39
    0 39 39 39 9 49 50 36 48 59 59 38 34 45 38 31 58 39 39 39 34 38 54 39 41 39 39 39 25 50 37
    """,
    """
    12 9 9 10 9 9 9 10 8 8 8 10 9 13 8 8 8 8 8 5 8 0 0 0 8 8 8 8 8 0 4 4
    0 0 0 0 12 12 9 13 4 5 8 9 8 12 12 8 4 0 0 0 8 8 8 8 4 0 0 0 13 13 8
    """,
)
PAR_LEVEL_FLAG = _variables(
    "33 25 18 26 34 27 25 26 19 42 35 33 19 27 35 35 34 42 20 43 20 33 25 26 42 19 27 26 50 35 20 43 11",
    "18 17 33 18 26 42 25 33 26 42 27 25 34 42 42 35 26 27 42 20 20 25 25 26 11 19 27 33 42 35 35 43 3",
    "33 40 25 41 26 42 25 33 26 34 27 25 41 42 42 35 33 27 35 42 43 33 25 26 34 19 27 33 42 43 35 43 11",
    "8 9 12 13 13 13 10 13 13 13 13 13 13 13 13 13 10 13 13 13 13 8 12 12 12 13 13 13 13 13 13 13 6",
)
ABS_LEVEL_GTX_FLAG = _variables(
    """
    25 25 11 27 20 21 33 12 28 21 22 34 28 29 29 30 36 29 45 30 23 40 33 27 28 21 37 36 37 45 38 46
    25 1 40 25 33 11 17 25 25 18 4 17 33 26 19 13 33 19 20 28 22 40 9 25 18 26 35 25 26 35 28 37
    11 5 5 14 10 3 3 3
    """,
    """
    0 17 26 19 35 21 25 34 20 28 29 33 27 28 29 22 34 28 44 37 38 0 25 19 20 13 14 57 44 30 30 23
    17 0 1 17 25 18 0 9 25 33 34 9 25 18 26 20 25 18 19 27 29 17 9 25 10 18 4 17 33 19 20 29
    18 11 4 28 2 10 3 3
    """,
    """
    0 0 33 34 35 21 25 34 35 28 29 40 42 43 29 30 49 36 37 45 38 0 40 34 43 36 37 57 52 45 38 46
    25 0 0 17 25 26 0 9 25 33 19 0 25 33 26 20 25 33 27 35 22 25 1 25 33 26 12 25 33 27 28 37
    19 11 4 6 3 4 4 5
    """,
    """
    9 5 10 13 13 10 9 10 13 13 13 9 10 10 10 13 8 9 10 10 13 8 8 9 12 12 10 5 9 9 9 13
    1 5 9 9 9 6 5 9 10 10 9 9 9 9 9 9 6 8 9 9 10 1 5 8 8 9 6 6 9 8 8 9
    4 2 1 6 1 1 1 1
    """,
)
COEFF_SIGN_FLAG = _variables("12 17 46 28 25 46", "5 10 53 43 25 46", "35 25 46 28 33 38", "1 4 4 5 8 8")

_VALUES = np.array(_COLUMNS, np.int64)

NUM_CONTEXTS = _VALUES.shape[1]
"""Number of context variables."""


def initial_contexts(slice_type: str, cabac_init: bool, qp: int) -> npt.NDArray[np.int64]:
    """Compute the context variables at the start of a slice.

    Clause 9.3.2.2, Initialization process for context variables.

    Args:
        slice_type: "I", "P" or "B".
        cabac_init: sh_cabac_init_flag.
        qp: SliceQpY.

    Returns:
        pStateIdx0, pStateIdx1, shift0 and shift1 of each variable, shape (4, NUM_CONTEXTS), int64.
    """
    init_type = {"I": 0, "P": 1, "B": 2}[slice_type]
    if cabac_init and init_type:
        init_type = 3 - init_type
    values, shifts = _VALUES[init_type], _VALUES[3]
    # The six bits of initValue describe a line over the QP by three bits of slope and three of offset, because
    # probabilities change with quantization.
    slope, offset = (values >> 3) - 4, (values & 7) * 18 + 1
    state = np.clip(((slope * (min(max(qp, 0), 63) - 16)) >> 1) + offset, 1, 127)
    # Each variable holds two estimates of one probability, of 10 and 14 bits, which adapt at these two rates.
    shift0 = (shifts >> 2) + 2
    return np.stack([state << 3, state << 7, shift0, (shifts & 3) + 3 + shift0])
