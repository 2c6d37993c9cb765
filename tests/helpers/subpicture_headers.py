"""Headers of VVC pictures with two subpictures, each of one slice, whose slices have NAL unit types of their own.

Pictures are of 128x64 samples without chroma, and subpictures are halves of 64x64. Slices have one byte of data:
`read_pictures` reads their headers, but they cannot be decoded.
"""

from collections.abc import Sequence

from codecnn.vvc.syntax import BitWriter, bitstream, with_emulation_prevention

START = b"\0\0\1"
LSB_BITS = 4


def _bits(w: BitWriter, text: str) -> None:
    """Write flags and codes that are given as zeros and ones."""
    for bit in text.replace(" ", ""):
        w.u(int(bit), 1)


def _unit(kind: int, w: BitWriter) -> bytes:
    """Return a NAL unit whose payload ends in a stop bit; a slice has a byte of data before it."""
    if kind in bitstream.SLICES:
        w.u(1, 1)
        w.u(0, -w.position % 8)
        w.u(255, 8)
    w.u(1, 1)
    w.u(0, -w.position % 8)
    return START + bytes([0, kind << 3 | 1]) + with_emulation_prevention(w.content())


def parameter_sets() -> bytes:
    """Return an SPS, and a PPS 0 and 1 whose pps_mixed_nalu_types_in_pic_flag is 0 and 1."""
    sps = BitWriter()
    # Ids, sublayers, chroma format, CTUs of 64x64; neither profile nor DPB, no resampling.
    _bits(sps, "0000 0000 000 00 01 0 0 0")
    sps.ue(128)
    sps.ue(64)
    # No window. Two independent subpictures of the same size: width in CTUs (one bit), and IDs of one bit.
    _bits(sps, "0 1 010 1 1 0 1 0")
    # 8 bits; no wavefronts, no entry points, LSBs of four bits, no MSBs, no extra bits.
    _bits(sps, "1 0 0 0000 0 00 00")
    # Coding blocks of at least 4x4; partition constraints of intra and inter slices without binary and ternary splits.
    _bits(sps, "1 0 1 1 1 1")
    # Transform, SAO, ALF, LMCS, weighted prediction, long-term pictures: none. IDR slices have reference lists.
    _bits(sps, "0 0 0 0 0 0 0 0 0 0 1")
    # The same lists for L0 and L1, none in the SPS.
    _bits(sps, "1 1")
    # Inter tools: none, six merge candidates.
    _bits(sps, "0 0 0 0 0 0 0 1 0 0 0 0 0 1")
    # Intra tools: none; LADF, scaling lists, dependent quantization, sign hiding: none.
    _bits(sps, "0 0 0 0 0 0 0 0 0")
    # Virtual boundaries, fields, VUI, extension: none.
    _bits(sps, "0 0 0 0")
    return _unit(bitstream.SPS, sps) + _pps(0) + _pps(1)


def _pps(mixed: int) -> bytes:
    pps = BitWriter()
    _bits(pps, f"00000{mixed} 0000 {mixed}")
    pps.ue(128)
    pps.ue(64)
    # No windows, output flag absent; partitioned, IDs of subpictures in the SPS.
    _bits(pps, "0 0 0 0 0")
    # CTUs of 64x64, a tile and a slice for each subpicture, no filters across their edges.
    _bits(pps, "01 010 1 1 1 1 0 1 1 0")
    # CABAC initialisation, active references, index of L1, weighted prediction, wraparound.
    _bits(pps, "0 1 1 0 0 0 0")
    # QP 26, no deltas, no chroma offsets, no deblocking control; nothing in the picture header, no extensions.
    _bits(pps, "1 0 0 0 0 0 0 0 0 0 0")
    return _unit(bitstream.PPS, pps)


def coded_picture(types: tuple[int, int], lsb: int, references: Sequence[int] = (), pps: int | None = None) -> bytes:
    """Return a picture of two I slices.

    Args:
        types: NAL unit types of both slices.
        lsb: ph_pic_order_cnt_lsb.
        references: POC differences of the entries of both reference picture lists.
        pps: Id of its PPS; by default that for its types.
    """
    ph = BitWriter()
    # ph_gdr_or_irap_pic_flag, ph_non_ref_pic_flag, ph_inter_slice_allowed_flag.
    _bits(ph, "0 0 0")
    ph.ue(int(types[0] != types[1]) if pps is None else pps)
    ph.u(lsb, LSB_BITS)
    units = [_unit(bitstream.PH, ph)]
    for index, kind in enumerate(types):
        w = BitWriter()
        w.u(0, 1)
        w.u(index, 1)
        if kind in (bitstream.IDR_W_RADL, bitstream.IDR_N_LP, bitstream.CRA):
            w.u(0, 1)
        for _ in range(2):
            w.ue(len(references))
            previous = 0
            for difference in references:
                w.ue(abs(difference - previous) - 1)
                w.u(int(difference < previous), 1)
                previous = difference
        w.se(0)  # sh_qp_delta
        units.append(_unit(kind, w))
    return b"".join(units)
