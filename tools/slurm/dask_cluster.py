"""Run a command of codecnn on a SLURM cluster with dask: start workers as jobs, run the command, and stop the workers.

    python tools/slurm/dask_cluster.py --jobs 8 --cores 16 dataset build datasets/div2k.yaml -o /shared/stores/div2k
    python tools/slurm/dask_cluster.py --jobs 8 --cores 16 evaluate /shared/stores/test -m low_cost_17 -o results

The command must accept --backend dask. Each worker is a job with `--cores` threads, and each thread works on one item
at a time. All nodes must see the pictures, the stores, the results and this environment. For PBS, LSF or SGE replace
SLURMCluster by the class of dask-jobqueue for that system. array.sbatch is an array job without dask.
"""

import argparse
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> None:
    """Start the cluster, run the command, and exit with its status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="largest number of jobs in the queue [4]")
    parser.add_argument("--cores", type=int, default=8, help="cores per job [8]")
    parser.add_argument("--memory", default="16GB", help="memory per job [16GB]")
    parser.add_argument("--walltime", default="12:00:00", help="time limit per job [12:00:00]")
    parser.add_argument("--queue", help="partition")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command of codecnn with its options")
    options = parser.parse_args()
    with SLURMCluster(
        cores=options.cores,
        processes=1,
        memory=options.memory,
        walltime=options.walltime,
        queue=options.queue,
    ) as cluster:
        cluster.adapt(maximum_jobs=options.jobs)
        backend = ["--backend", "dask", "--scheduler", cluster.scheduler_address]
        status = subprocess.run([sys.executable, "-m", "codecnn", *options.command, *backend], check=False).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
