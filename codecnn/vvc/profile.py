"""Profile, tier, level and buffering (H.266 clauses 7.3.3 to 7.3.5): passed over, nothing in them changes parsing."""

from codecnn.vvc.bits import Bits


def skip_profile_tier_level(r: Bits, sublayers: int) -> None:
    """profile_tier_level(1, sublayers - 1)."""
    # general_profile_idc, general_tier_flag, general_level_idc, frame only and multilayer flags
    r.skip(7 + 1 + 8 + 1 + 1)
    if r.flag():
        # general_constraints_info(): 71 bits of constraints, then gci_num_additional_bits and those bits.
        r.skip(71)
        r.skip(r.u(8))
    r.align()
    present = [r.flag() for _ in range(sublayers - 1)]
    r.align()
    r.skip(8 * sum(present))
    r.skip(32 * r.u(8))


def skip_dpb_parameters(r: Bits, sublayers: int, every: bool) -> None:
    """dpb_parameters(): three codes a sublayer, of every sublayer or of the last."""
    for _ in range(sublayers if every else 1):
        for name in ("dpb_max_dec_pic_buffering_minus1", "dpb_max_num_reorder_pics", "dpb_max_latency_increase_plus1"):
            r.ue(name, 2**32 - 2)


def skip_timing_hrd(r: Bits, sublayers: int) -> None:
    """general_timing_hrd_parameters(), sps_sublayer_cpb_params_present_flag and ols_timing_hrd_parameters()."""
    r.skip(64)
    nal, vcl = r.flag(), r.flag()
    decoding_units, counts = False, 1
    if nal or vcl:
        r.skip(1)
        decoding_units = r.flag()
        r.skip(8 * decoding_units + 4 + 4 + 4 * decoding_units)
        counts = r.ue("hrd_cpb_cnt_minus1", 31) + 1
    every = sublayers > 1 and r.flag()
    for _ in range(sublayers if every else 1):
        fixed_general = r.flag()
        fixed_cvs = fixed_general or r.flag()
        if fixed_cvs:
            r.ue("elemental_duration_in_tc_minus1", 2047)
        elif (nal or vcl) and counts == 1:
            r.skip(1)
        for _ in range((nal + vcl) * counts):
            for _ in range(4 if decoding_units else 2):
                r.ue("bit_rate_value_minus1", 2**32 - 2)
            r.skip(1)
