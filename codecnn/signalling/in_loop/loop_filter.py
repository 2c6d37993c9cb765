"""The filter in the coding loop of a stream, for the decoder `codecnn.vvc.decoder`.

`LoopFilter` reads parameters and decisions from the stream (docs/reference/loop_filter.md), finds the weights by their
SHA-256, and filters each picture as the encoder did, in integers.
"""

from pathlib import Path

import torch

from codecnn.base.errors import FormatError, MissingFileError, ModelError, UnsupportedError
from codecnn.base.files import sha256_file
from codecnn.base.planes import SLICE_TYPES
from codecnn.filtering import round_samples, slice_type_plane
from codecnn.filtering.decisions import (
    ID_DIGITS,
    DecisionReader,
    LoopParameters,
    SignalledDecision,
    apply_decision,
    is_off,
    read_parameters,
)
from codecnn.filtering.integer import ExactFilter, integer_path, is_integer, load_integer
from codecnn.models import card_path, path_of_sha256, weights_path
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture, VideoFormat
from codecnn.signalling.in_loop.messages import output_md5
from codecnn.vvc.decoder import HookedPicture
from codecnn.vvc.syntax import CHROMA_FORMATS, ParsedPicture


class LoopFilter:
    """The hook of `codecnn.vvc.decoder` for streams that were coded with a CNN filter in the loop.

        from codecnn.signalling.in_loop import LoopFilter
        from codecnn.codec import read_pictures

        for poc, planes in read_pictures("stream.266", ("rec_y", "rec_u", "rec_v"), hook=LoopFilter()):
            ...

    Pictures of a coded video sequence without parameters of a filter are returned unchanged. Every stream needs a new
    hook.

    Args:
        weights: Weights of the filter, a file or a name; None finds them among those that come with the package.
        device: Device to compute on, which changes no sample.
    """

    def __init__(self, weights: Path | str | None = None, *, device: str | torch.device = "cpu") -> None:
        self.weights = weights
        self.device = device
        self._decisions: DecisionReader | None = None
        self._filters: dict[str, ExactFilter] = {}

    def __call__(self, picture: ParsedPicture, planes: list[Array]) -> HookedPicture:
        """Filter a picture as the encoder did; see `codecnn.vvc.decoder.PictureHook`.

        Args:
            picture: The parsed picture.
            planes: Its components after the in-loop filters, each (h, w).

        Returns:
            The components that later pictures refer to, and those that are output.

        Raises:
            FormatError: Parameters or decision are damaged or missing, or they do not fit the picture.
            UnsupportedError: The parameters have another version, or the network was computed in float.
            MissingFileError: The weights do not come with the package, and none are given.
            ModelError: The weights are others than those of the stream, or they cannot be loaded.
        """
        data = picture.slice_extension
        if picture.first:
            self._decisions = None
        if picture.loop_filter is not None:
            parameters, data = read_parameters(picture.loop_filter)
            self._check(parameters, len(planes))
            self._decisions = DecisionReader(parameters)
        if self._decisions is None:
            return HookedPicture(planes, planes)
        if data is None:
            raise FormatError("the slice header has no extension with the decision on the filter in the loop")
        slice_qp = picture.slices[0].header.slice_qp_y
        decision, behind = self._decisions.read(data, slice_qp, planes[0].shape)
        height, width = planes[0].shape
        depth = picture.sps.bit_depth
        form = VideoFormat(width, height, CHROMA_FORMATS[picture.sps.sps_chroma_format_idc], depth)
        decoded = Picture(tuple(plane.astype(form.dtype) for plane in planes), depth)
        filtered = self._filtered(picture, decoded, form, self._decisions.parameters, decision)
        proven = picture.output_md5 is None or picture.output_md5 == output_md5(filtered)
        reference = decoded if behind else filtered
        return HookedPicture(list(reference.planes), list(filtered.planes), proven)

    def _filtered(
        self,
        picture: ParsedPicture,
        decoded: Picture,
        form: VideoFormat,
        parameters: LoopParameters,
        decision: SignalledDecision | None,
    ) -> Picture:
        """Filter a decoded picture by a decision; None filters all of it."""
        if is_off(decision):
            return decoded
        headers = [part.header for part in picture.slices]
        qps = {header.slice_qp_y for header in headers}
        if len(qps) > 1:
            raise FormatError(f"the slices have the QPs {sorted(qps)}, and a filter in the loop needs one")
        filter_ = self._loaded(parameters)
        slice_type = max((header.slice_type for header in headers), key=lambda kind: SLICE_TYPES[kind])
        planes = slice_type_plane(filter_.planes, slice_type, form)
        qp = qps.pop() + (0 if decision is None else decision.qp_offset)
        samples = filter_.samples(decoded, qp, planes)
        if decision is None:
            return round_samples(decoded, samples)
        return apply_decision(decoded, samples, decision, parameters.ctu_size)

    def _check(self, parameters: LoopParameters, components: int) -> None:
        """Raise FormatError or UnsupportedError if parameters do not fit the picture or the decoder."""
        if parameters.arithmetic == "float":
            raise UnsupportedError(
                "the filter in the loop was computed in float, which gives other samples on other machines: code the "
                "stream again with integers (codecnn evaluate-loop --exact)"
            )
        if len(parameters.components) > components:
            raise FormatError(
                f"the filter in the loop filters {', '.join(parameters.components)}, and the picture has {components} "
                "components"
            )
        outputs = self._loaded(parameters).outputs
        if outputs != parameters.components:
            raise FormatError(
                f"the stream says that the filter in the loop filters {', '.join(parameters.components)}, and its "
                f"weights filter {', '.join(outputs)}"
            )

    def _loaded(self, parameters: LoopParameters) -> ExactFilter:
        """Return the filter of the weights, loaded once."""
        weights_id = parameters.weights_id
        if weights_id not in self._filters:
            network, card = load_integer(self._find(weights_id))
            self._filters[weights_id] = ExactFilter(network, device=self.device, card=card)
        return self._filters[weights_id]

    def _find(self, weights_id: str) -> Path:
        """Find the weights file whose SHA-256 begins with `weights_id`."""
        if self.weights is None:
            path = path_of_sha256(weights_id)
            if path is None:
                raise MissingFileError(
                    f"the stream was coded with a CNN filter in the loop whose weights (SHA-256 {weights_id}...) do "
                    "not come with codecnn: name the file with -m"
                )
            return path
        given = weights_path(self.weights)
        if not given.is_file():
            raise MissingFileError(f"{given} does not exist")
        forms = [given] if is_integer(given) else [integer_path(given, bits) for bits in (8, 16)]
        for path in forms:
            if path.is_file() and card_path(path).is_file() and sha256_file(path).startswith(weights_id):
                return path
        raise ModelError(
            f"{given} (SHA-256 {sha256_file(given)[:ID_DIGITS]}...) and its integer forms are not the weights that the "
            f"stream was coded with (SHA-256 {weights_id}...): name those with -m, or leave out -m"
        )
