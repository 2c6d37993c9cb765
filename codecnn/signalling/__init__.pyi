from .adaptation import Adaptation as Adaptation
from .adaptation import adapt as adapt
from .carried import describe_carried as describe_carried
from .carried import filter_carried as filter_carried
from .post_filters import CarriedAs as CarriedAs
from .post_filters import WrittenFilter as WrittenFilter
from .post_filters import write_filter as write_filter
