"""Work of codecnn on a SLURM cluster by dask: starts workers as jobs, runs a command on them, and lets them go.

    python tools/slurm/dask_cluster.py --jobs 8 --cores 16 dataset build datasets/div2k.yaml -o /shared/stores/div2k
    python tools/slurm/dask_cluster.py --jobs 8 --cores 16 evaluate /shared/stores/test -m low_cost_17 -o results

The command is one that takes --backend dask. Each worker is a job with `--cores` threads, each of which works on one
item at a time. Pictures, stores, results and this environment must lie where all nodes see them. For PBS, LSF or SGE
take the class of that name from dask-jobqueue instead; an array job without dask is array.sbatch.
"""

import argparse
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="jobs in the queue at most")
    parser.add_argument("--cores", type=int, default=8, help="cores of a job")
    parser.add_argument("--memory", default="16GB", help="of a job")
    parser.add_argument("--walltime", default="12:00:00")
    parser.add_argument("--queue", help="partition")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of codecnn, with its options")
    options = parser.parse_args()
    with SLURMCluster(
        cores=options.cores,
        processes=1,
        memory=options.memory,
        walltime=options.walltime,
        queue=options.queue,
    ) as cluster:
        cluster.adapt(maximum_jobs=options.jobs)
        spread = ["--backend", "dask", "--scheduler", cluster.scheduler_address]
        status = subprocess.run([sys.executable, "-m", "codecnn", *options.command, *spread], check=False).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
