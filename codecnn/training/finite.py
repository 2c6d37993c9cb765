"""The error of a training whose loss or gradient is no longer finite: at which step it began, and what to try."""

from collections.abc import Callable

from torch import Tensor

from codecnn.base.errors import CodecnnError
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch


def check_finite(
    losses: Tensor, norms: Tensor, step: int, settings: LoopSettings, batch_of: Callable[[int], Batch]
) -> None:
    """Raise an error that names the first step at which loss or gradient is not finite, and what to try.

    Args:
        losses: Losses of the last steps, up to `step`.
        norms: Gradient norms of the last steps, up to `step`.
        step: Number of steps that were taken.
        settings: Settings of the loop.
        batch_of: Function that draws the batch of a step again.

    Raises:
        CodecnnError: A loss or gradient is not finite.
    """
    wrong_losses, wrong_norms = _first_wrong(losses, step), _first_wrong(norms, step)
    if not wrong_losses and not wrong_norms:
        return
    first = min(wrong_losses + wrong_norms)
    inputs = [name for name, tensor in batch_of(first).items() if not bool(tensor.isfinite().all())]
    if inputs:
        raise CodecnnError(
            f"the input of step {first} is not finite ({', '.join(inputs)}): run `codecnn dataset verify` on the "
            "store and `codecnn check` on the configuration"
        )
    rate = "muon_rate or training.learning_rate" if settings.optimiser == "muon" else "learning_rate"
    advice = f"lower training.{rate}"
    advice += ", or set training.precision to float32" if settings.precision == "bfloat16" else ""
    if first in wrong_losses:
        raise CodecnnError(
            f"the loss is no longer finite at step {first}, while its input is: {advice}; if that does not help, "
            "run `codecnn check` on the configuration"
        )
    raise CodecnnError(
        f"the gradient is no longer finite at step {first}, while loss and input are: run `codecnn check` on the "
        f"configuration, which names the parameters of such gradients, or {advice}"
    )


def _first_wrong(values: Tensor, step: int) -> list[int]:
    """Return the step of the first value that is not finite, or nothing; the last value is that of `step`."""
    return [step - len(values) + 1 + int(index) for index in (~values.isfinite()).nonzero()[:1]]
