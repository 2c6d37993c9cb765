"""Training of in-loop filter networks.

`filter_task` constructs the task of training a network on stores. `filter_loss` is its training loss, `psnr_gains` the
validation, and `Teacher` provides training targets for distillation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
