__version__: str

from .analysis import correlate as correlate
from .analysis import load_table as load_table
from .codec import read_blocks as read_blocks
from .dataset import patch_loader as patch_loader
from .dataset import picture_loader as picture_loader
from .filtering import load_filter as load_filter
from .labels import label_blocks as label_blocks
from .labels import predict_block_modes as predict_block_modes
from .models import create_model as create_model
from .models import list_models as list_models
from .models import load_model as load_model
from .quality import bd_rate as bd_rate
from .quality import psnr as psnr
from .verbs import build_dataset as build_dataset
from .verbs import evaluate as evaluate
from .verbs import export as export
from .verbs import filter_file as filter_file
from .verbs import open_dataset as open_dataset
from .verbs import train as train
from .verbs import write_filter as write_filter
from .video import open_video as open_video
from .viewer import view as view
