"""Syntax of the neural-network post-filter SEI messages: one description of the elements for writing and reading.

`_characteristics` and `_activation` walk through the syntax tables of H.274 (clauses 8.28.1.1 and 8.28.2.1, with the
extensions that VTM 23.13 implements) and pass every element to a coder. `_Writer` takes the value from a message and
writes it; `_Reader` reads it. Both return it, so that conditions of later elements are the same in both directions.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from codecnn.base.errors import ConfigError, FormatError
from codecnn.signalling.nnpf.messages import MODE_NNC, MODE_URI, NNPFA, NNPFC, Activation, Characteristics, Message
from codecnn.vvc.syntax import Bits, BitWriter

MAX_ID = 2**32 - 2
"""Largest nnpfc_id and nnpfa_target_id."""

MAX_EXTENSION_BITS = 4096
"""Largest nnpfc_metadata_extension_num_bits."""

_CHROMA_UPSAMPLING, _RESAMPLING, _RATE_UPSAMPLING = 0x02, 0x04, 0x08
_COLOURIZATION, _TEMPORAL, _SPATIAL = 0x20, 0x40, 0x80
_RESERVED_PURPOSES = 0xFF00
_LARGEST_CODE = 2**32 - 2


class _Coder(Protocol):
    """Interface of the writer and the reader for the syntax tables; methods of elements return the value."""

    def value(self, name: str) -> Any: ...
    def u(self, name: str, bits: int, top: int | None = None) -> int: ...
    def flag(self, name: str) -> bool: ...
    def ue(self, name: str, top: int = _LARGEST_CODE) -> int: ...
    def se(self, name: str, low: int, high: int) -> int: ...
    def st(self, name: str) -> str: ...
    def flags(self, name: str, count: int) -> tuple[bool, ...]: ...
    def codes(self, name: str, count: int, top: int) -> tuple[int, ...]: ...
    def align(self) -> None: ...
    def rest(self, name: str) -> bytes: ...
    def has_more(self, name: str) -> bool: ...


def write_message(message: Message) -> bytes:
    """Write a message as the payload of an SEI message, sei_payload() with its last bits.

    Raises:
        ConfigError: An element is out of range, missing, or given where the syntax does not have it.
    """
    coder = _Writer(message)
    try:
        _TABLES[type(message)](coder)
        return coder.finish()
    except FormatError as error:
        raise ConfigError(str(error)) from None


def read_message(payload_type: int, payload: bytes) -> Message:
    """Read a message from the payload of an SEI message; data of extensions at its end is ignored.

    Args:
        payload_type: NNPFC or NNPFA.
        payload: sei_payload() without emulation prevention bytes.

    Raises:
        FormatError: The payload is damaged, or has a reserved value for which decoders are to ignore the message.
    """
    kind: type[Message] = {NNPFC: Characteristics, NNPFA: Activation}[payload_type]
    coder = _Reader(payload)
    _TABLES[kind](coder)
    coder.finish()
    return kind(**coder.values)


# --- syntax tables ---------------------------------------------------------------------------------------------------


def _characteristics(c: _Coder) -> None:
    """Code an NNPFC message (clause 8.28.1.1)."""
    purpose = c.u("nnpfc_purpose", 16)
    _need(not purpose & _RESERVED_PURPOSES, f"nnpfc_purpose is {purpose:#x}, of which bits beyond 0xff are reserved")
    number = c.ue("nnpfc_id", MAX_ID)
    _need(not (256 <= number < 512 or number >= 2**31), f"nnpfc_id is {number}, which is reserved")
    base = c.flag("nnpfc_base_flag")
    mode = c.ue("nnpfc_mode_idc", 255)
    _need(mode in (MODE_NNC, MODE_URI), f"nnpfc_mode_idc is {mode}, which is reserved")
    if mode == MODE_URI:
        c.align()
        c.st("nnpfc_tag_uri")
        c.st("nnpfc_uri")
    properties = c.flag("nnpfc_property_present_flag")
    _need(properties or not base, "nnpfc_property_present_flag is 0 in a base filter, which must have its properties")
    if properties:
        _pictures(c, purpose)
        _tensors(c, purpose)
        _patches(c, purpose)
        _complexity(c)
        _extension(c, purpose)
    if mode == MODE_NNC:
        c.align()
        c.rest("nnpfc_payload_byte")


def _pictures(c: _Coder, purpose: int) -> None:
    """Code the numbers and sizes of input and output pictures."""
    more_inputs = c.ue("nnpfc_num_input_pics_minus1", 63)
    if more_inputs:
        filtered = c.flags("nnpfc_input_pic_filtering_flag", more_inputs + 1)
        _need(
            any(filtered) or bool(purpose & (_RATE_UPSAMPLING | _TEMPORAL)),
            "nnpfc_input_pic_filtering_flag is 0 for every input picture",
        )
        c.flag("nnpfc_absent_input_pic_zero_flag")
    if purpose & _CHROMA_UPSAMPLING:
        c.flag("nnpfc_out_sub_c_flag")
    if purpose & _COLOURIZATION:
        _need(not purpose & _CHROMA_UPSAMPLING, "nnpfc_purpose has chroma upsampling and colourization together")
        _need(c.u("nnpfc_out_colour_format_idc", 2) > 0, "nnpfc_out_colour_format_idc is 0")
    if purpose & _RESAMPLING:
        for side in ("width", "height"):
            numerator = c.ue(f"nnpfc_pic_{side}_num_minus1", 65535) + 1
            denominator = c.ue(f"nnpfc_pic_{side}_denom_minus1", 65535) + 1
            ratio = f"{numerator}/{denominator}"
            _need(denominator <= 16 * numerator <= 256 * denominator, f"the {side} ratio {ratio} is not 1/16 to 16")
    if purpose & _RATE_UPSAMPLING:
        _need(more_inputs > 0, "nnpfc_num_input_pics_minus1 is 0 for picture rate upsampling")
        added = c.codes("nnpfc_interpolated_pics", more_inputs, 63)
        _need(any(added), "nnpfc_interpolated_pics is 0 between all input pictures")
    if purpose & _TEMPORAL:
        c.ue("nnpfc_extrapolated_pics_minus1", 63)
    if purpose & _SPATIAL:
        for side in ("left", "right", "top", "bottom"):
            c.se(f"nnpfc_spatial_extrapolation_{side}_offset", -(2**15), 2**15 - 1)


def _tensors(c: _Coder, purpose: int) -> None:
    """Code types and order of the tensors, auxiliary inputs and colour."""
    c.flag("nnpfc_component_last_flag")
    inp_format = c.ue("nnpfc_inp_format_idc", 1)
    auxiliary = c.ue("nnpfc_auxiliary_inp_idc", 7)
    if auxiliary & 2 and c.flag("nnpfc_inband_prompt_flag"):
        c.align()
        c.st("nnpfc_prompt")
    if auxiliary & 4 and c.flag("nnpfc_inband_seed_flag"):
        c.u("nnpfc_seed", 16)
    inp_order = c.ue("nnpfc_inp_order_idc", 3)
    chroma_upsampling = bool(purpose & _CHROMA_UPSAMPLING)
    _need(inp_order > 0 or not chroma_upsampling, "nnpfc_inp_order_idc is 0 for chroma upsampling")
    _bit_depths(c, "inp", inp_format, inp_order)
    out_format = c.ue("nnpfc_out_format_idc", 1)
    out_order = c.ue("nnpfc_out_order_idc", 3)
    _need(out_order in (1, 2) or not chroma_upsampling, f"nnpfc_out_order_idc is {out_order} for chroma upsampling")
    _need(out_order > 0 or not purpose & _COLOURIZATION, "nnpfc_out_order_idc is 0 for colourization")
    _bit_depths(c, "out", out_format, out_order)
    if c.flag("nnpfc_separate_colour_description_present_flag"):
        c.u("nnpfc_colour_primaries", 8)
        c.u("nnpfc_transfer_characteristics", 8)
        if out_format == 1:
            c.u("nnpfc_matrix_coeffs", 8)
            c.flag("nnpfc_full_range_flag")
    if out_order and c.flag("nnpfc_chroma_loc_info_present_flag"):
        c.ue("nnpfc_chroma_sample_loc_type_frame", 6)


def _bit_depths(c: _Coder, side: str, tensor_format: int, order: int) -> None:
    if tensor_format != 1:
        return
    if order != 1:
        c.ue(f"nnpfc_{side}_tensor_luma_bitdepth_minus8", 24)
    if order != 0:
        c.ue(f"nnpfc_{side}_tensor_chroma_bitdepth_minus8", 24)


def _patches(c: _Coder, purpose: int) -> None:
    """Code size, overlap and padding of patches."""
    constant = True
    if not purpose & _SPATIAL:
        c.ue("nnpfc_overlap", 16383)
        constant = c.flag("nnpfc_constant_patch_size_flag")
    for side in ("width", "height"):
        if constant:
            c.ue(f"nnpfc_patch_{side}_minus1", 32766)
        else:
            c.ue(f"nnpfc_extended_patch_{side}_cd_delta_minus1", 65535)
    padding = c.ue("nnpfc_padding_type", 15)
    _need(padding < 5, f"nnpfc_padding_type is {padding}, which is reserved")
    if padding == 4:
        order = c.value("nnpfc_inp_order_idc")
        if order != 1:
            c.ue("nnpfc_luma_padding_val", 65535)
        if order != 0:
            c.ue("nnpfc_cb_padding_val", 65535)
            c.ue("nnpfc_cr_padding_val", 65535)


def _complexity(c: _Coder) -> None:
    if not c.flag("nnpfc_complexity_info_present_flag"):
        return
    kind = c.u("nnpfc_parameter_type_idc", 2)
    _need(kind < 3, "nnpfc_parameter_type_idc is 3, which is reserved")
    if kind != 2:
        c.u("nnpfc_log2_parameter_bit_length_minus3", 2)
    c.u("nnpfc_num_parameters_idc", 6, 52)
    c.ue("nnpfc_num_kmac_operations_idc")
    c.ue("nnpfc_total_kilobyte_size")


def _extension(c: _Coder, purpose: int) -> None:
    """Code the metadata extension.

    Its number of bits does not count the bits that align its tag URI to bytes, as in VTM 23.13.
    """
    size = c.ue("nnpfc_metadata_extension_num_bits", MAX_EXTENSION_BITS)
    if not size:
        return
    used = 4
    if purpose == 0:
        used += 1
        if c.flag("nnpfc_application_purpose_tag_uri_present_flag"):
            c.align()
            used += 8 * (len(c.st("nnpfc_application_purpose_tag_uri").encode()) + 1)
    if purpose & (_SPATIAL | _RESAMPLING):
        used += 2
        c.u("nnpfc_scan_type_idc", 2)
    c.u("nnpfc_for_human_viewing_idc", 2)
    c.u("nnpfc_for_machine_analysis_idc", 2)
    _need(size >= used, f"nnpfc_metadata_extension_num_bits is {size}, but its elements take {used} bits")
    if size > used:
        c.u("nnpfc_reserved_metadata_extension", size - used)


def _activation(c: _Coder) -> None:
    """Code an NNPFA message (clause 8.28.2.1)."""
    c.ue("nnpfa_target_id", MAX_ID)
    if c.flag("nnpfa_cancel_flag"):
        return
    persistent = c.flag("nnpfa_persistence_flag")
    c.flag("nnpfa_target_base_flag")
    c.flag("nnpfa_no_prev_clvs_flag")
    if persistent:
        c.flag("nnpfa_no_foll_clvs_flag")
    count = c.ue("nnpfa_num_output_entries", 64)
    c.flags("nnpfa_output_flag", count)
    if not c.has_more("nnpfa_prompt_update_flag"):
        return
    if c.flag("nnpfa_prompt_update_flag"):
        c.align()
        _need(c.st("nnpfa_prompt") != "", "nnpfa_prompt is empty")
    if c.flag("nnpfa_seed_update_flag"):
        c.u("nnpfa_seed", 16)
    if c.flag("nnpfa_selected_input_flag"):
        c.ue("nnpfa_num_input_pic_shift")


def _need(condition: bool, problem: str) -> None:
    if not condition:
        raise FormatError(problem)


_TABLES: dict[type, Callable[[Any], None]] = {Characteristics: _characteristics, Activation: _activation}


# --- coders ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Coder that writes the elements of a message."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._bits = BitWriter()
        self._written: set[str] = set()

    def value(self, name: str) -> Any:
        """Return the value of an element, which the message must have."""
        value = getattr(self._message, name)
        if value is None:
            raise FormatError(f"{name} is missing: the other elements require it")
        self._written.add(name)
        return value

    def _number(self, name: str, low: int, high: int) -> int:
        value = self.value(name)
        if type(value) is not int or not low <= value <= high:
            raise FormatError(f"{name} is {value!r}, not in {low} to {high}")
        return value

    def u(self, name: str, bits: int, top: int | None = None) -> int:
        value = self._number(name, 0, (1 << bits) - 1 if top is None else top)
        self._bits.u(value, bits)
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if type(value) is not bool:
            raise FormatError(f"{name} is {value!r}, not True or False")
        self._bits.u(int(value), 1)
        return value

    def ue(self, name: str, top: int = _LARGEST_CODE) -> int:
        value = self._number(name, 0, top)
        self._bits.ue(value)
        return value

    def se(self, name: str, low: int, high: int) -> int:
        value = self._number(name, low, high)
        self._bits.se(value)
        return value

    def st(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str) or "\0" in value:
            raise FormatError(f"{name} is {str(value)[:80]!r}, not text without zero characters")
        try:
            content = value.encode()
        except UnicodeEncodeError:
            raise FormatError(f"{name} is {value[:80]!r}, which UTF-8 cannot encode") from None
        self._bits.data(content + b"\0")
        return value

    def _array(self, name: str, count: int) -> tuple[Any, ...]:
        values = self.value(name)
        if not isinstance(values, tuple) or len(values) != count:
            raise FormatError(f"{name} is {str(values)[:80]}, not {count} values")
        return values

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        values = self._array(name, count)
        for value in values:
            if type(value) is not bool:
                raise FormatError(f"{name} has {value!r}, not True or False")
            self._bits.u(int(value), 1)
        return values

    def codes(self, name: str, count: int, top: int) -> tuple[int, ...]:
        values = self._array(name, count)
        for value in values:
            if type(value) is not int or not 0 <= value <= top:
                raise FormatError(f"{name} has {value!r}, not in 0 to {top}")
            self._bits.ue(value)
        return values

    def align(self) -> None:
        self._bits.u(0, -self._bits.position & 7)

    def rest(self, name: str) -> bytes:
        value = self.value(name)
        if not isinstance(value, bytes):
            raise FormatError(f"{name} is not bytes")
        self._bits.data(value)
        return value

    def has_more(self, name: str) -> bool:
        return getattr(self._message, name) is not None

    def finish(self) -> bytes:
        """Return the payload; raise FormatError if the message has elements that the syntax does not have."""
        for field in fields(self._message):
            if field.name not in self._written and getattr(self._message, field.name) is not None:
                raise FormatError(f"{field.name} is given, but the other elements exclude it")
        if open_bits := -self._bits.position & 7:
            # payload_bit_equal_to_one and zeros (H.266 clause D.2.1, H.265 clause D.2.1)
            self._bits.u(1 << (open_bits - 1), open_bits)
        return self._bits.content()


class _Reader:
    """Coder that reads the elements of a payload into `values`."""

    def __init__(self, payload: bytes) -> None:
        self._bits = Bits(payload)
        self.values: dict[str, Any] = {}

    def value(self, name: str) -> Any:
        """Return the value of an element that has been read."""
        return self.values[name]

    def u(self, name: str, bits: int, top: int | None = None) -> int:
        value = self.values[name] = self._bits.u(bits)
        if top is not None and value > top:
            raise FormatError(f"{name} is {value}, more than {top}")
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name] = self._bits.flag()
        return value

    def ue(self, name: str, top: int = _LARGEST_CODE) -> int:
        value = self.values[name] = self._bits.ue(name, top)
        return value

    def se(self, name: str, low: int, high: int) -> int:
        value = self.values[name] = self._bits.se(name, low, high)
        return value

    def st(self, name: str) -> str:
        start = self._bits.position // 8
        end = self._bits.data.find(b"\0", start)
        if end < 0:
            raise FormatError(f"{name} has no end")
        try:
            value = self.values[name] = self._bits.data[start:end].decode()
        except UnicodeDecodeError:
            raise FormatError(f"{name} is not UTF-8") from None
        self._bits.position = 8 * (end + 1)
        return value

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        values = self.values[name] = tuple(self._bits.flag() for _ in range(count))
        return values

    def codes(self, name: str, count: int, top: int) -> tuple[int, ...]:
        values = self.values[name] = tuple(self._bits.ue(name, top) for _ in range(count))
        return values

    def align(self) -> None:
        if self._bits.u(-self._bits.position & 7):
            raise FormatError("an alignment bit is not zero")

    def rest(self, name: str) -> bytes:
        value = self.values[name] = self._bits.data[self._bits.position // 8 :]
        self._bits.position = 8 * len(self._bits.data)
        return value

    def has_more(self, name: str) -> bool:
        """Return whether elements follow, not only the last bits of the payload: a one and zeros to the boundary."""
        left = 8 * len(self._bits.data) - self._bits.position
        if left > 7:
            return True
        ahead = Bits(self._bits.data)
        ahead.position = self._bits.position
        return left > 0 and ahead.u(left) != 1 << (left - 1)

    def finish(self) -> None:
        """Check that the payload ends in a one and zeros, unless the message ends at its end; skip extension data."""
        left = 8 * len(self._bits.data) - self._bits.position
        if left and not self._bits.data[-1] & (0xFF >> max(8 - left, 0)):
            raise FormatError("the payload does not end in its alignment bits")
