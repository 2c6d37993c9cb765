__version__: str

from .analysis import correlate as correlate
from .analysis import load_table as load_table
from .api import build_dataset as build_dataset
from .api import evaluate as evaluate
from .api import export as export
from .api import filter as filter  # noqa: A004
from .api import measure as measure
from .api import open_dataset as open_dataset
from .api import plan_dataset as plan_dataset
from .api import train as train
from .base.errors import CodecnnError as CodecnnError
from .codec import read_blocks as read_blocks
from .codec import read_pictures as read_pictures
from .dataset import patch_loader as patch_loader
from .dataset import picture_loader as picture_loader
from .filtering import filter_luma as filter_luma
from .filtering import load_filter as load_filter
from .models import create_model as create_model
from .models import list_models as list_models
from .models import list_weights as list_weights
from .models import load_model as load_model
from .modes.labels import label_blocks as label_blocks
from .modes.labels import predict_block_modes as predict_block_modes
from .pictures.files import open_video as open_video
from .pictures.metrics import bd_rate as bd_rate
from .pictures.metrics import psnr as psnr
from .signalling import evaluate_in_loop as evaluate_in_loop
from .signalling import write_filter as write_filter
from .viewer import view as view
from .vvc.intra import forward_transform as forward_transform
from .vvc.intra import predict_modes as predict_modes
from .vvc.intra import satd as satd
