"""Training of filter networks: `filter_task` makes the task; its loss, and the PSNR gain that it validates by."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
