from .base import Finding as Finding
from .base import Setup as Setup
from .run import check_filter as check_filter
from .run import check_task as check_task
from .run import task_setup as task_setup
