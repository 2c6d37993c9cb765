"""Where a network computes."""

import torch

from codecnn.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """The torch device called `name`; "auto" is CUDA where there is one. ConfigError for one that is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is none of auto, cpu, cuda and cuda:N")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device {name!r} cannot be used here, and `codecnn doctor` says why: {str(error).splitlines()[0]}"
        ) from error
    return device
