#!/bin/sh
# Build the wheel of the sources in folder $1, install it with its extras into the new environment $2, and examine it.
# The steps of the container; they run on a bare machine too:
#
#   sh tools/container/install.sh . /opt/codecnn
#
# PYTHON names the interpreter, default python3.
set -eu
source=$(cd "$1" && pwd)
environment=$2
extras=cluster,export,hub,notebook
wheels=$(mktemp -d)

"${PYTHON:-python3}" -m venv "$environment"
python=$environment/bin/python
"$python" -m pip wheel --quiet --no-cache-dir --no-deps --wheel-dir "$wheels" "$source"
"$python" -m pip install --quiet --no-cache-dir --constraint "$source/constraints.txt" "$(echo "$wheels"/codecnn-*.whl)[$extras]"
rm -r "$wheels"
"$environment/bin/codecnn" doctor
