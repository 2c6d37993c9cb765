"""A training set on a SLURM cluster by dask: starts workers as jobs, codes, and lets them go.

    python tools/slurm/dask_cluster.py datasets/div2k.yaml -o /shared/stores/div2k --jobs 8 --cores 16

Each worker is a job with `--cores` threads, and each thread runs an encoder. Store, pictures and this environment must
lie where all nodes see them. For PBS, LSF or SGE take the class of that name from dask-jobqueue instead; an array job
without dask is dataset_build.sbatch.
"""

import argparse
from pathlib import Path

from dask_jobqueue import SLURMCluster

from codecnn.config import load_recipe
from codecnn.console import progress
from codecnn.dataset.build import build_store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=4, help="jobs in the queue at most")
    parser.add_argument("--cores", type=int, default=8, help="cores of a job")
    parser.add_argument("--memory", default="16GB", help="of a job")
    parser.add_argument("--walltime", default="12:00:00")
    parser.add_argument("--queue", help="partition")
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, options.overrides)
    with (
        SLURMCluster(
            cores=options.cores,
            processes=1,
            memory=options.memory,
            walltime=options.walltime,
            queue=options.queue,
        ) as cluster,
        progress("coding", "unit") as report,
    ):
        cluster.adapt(maximum_jobs=options.jobs)
        build_store(
            recipe,
            options.recipe.parent,
            options.output,
            scheduler=cluster.scheduler_address,
            progress=report,
        )


if __name__ == "__main__":
    main()
