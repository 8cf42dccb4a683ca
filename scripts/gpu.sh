#!/bin/sh
# Test the kernels on this machine's GPU, then measure them. Downloads and installs nothing.
# Usage: scripts/gpu.sh [--quick] [kernels] [engine] [benchmarks]; no part named: all, 20 minutes at most.
set -u
cd "$(dirname "$0")/.."

quick=
parts=
for word in "$@"; do
    case $word in
        --quick) quick=--quick ;;
        kernels | engine | benchmarks) parts="$parts $word" ;;
        *)
            echo "error: gpu: $word: known are --quick, kernels, engine, benchmarks" >&2
            exit 2
            ;;
    esac
done

python=
for candidate in "${PYTHON:-}" python3 .venv/bin/python; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: gpu: no Python here (PYTHON, python3, .venv/bin/python) has a torch that finds a CUDA device" >&2
    echo "Run this on a machine with one. Without: make kernels (interpreter), python -m benchmarks.kernels.compiled" >&2
    exit 2
fi

PYTHONPATH=$PWD/core:$PWD/planner:$PWD/kernels:$PWD/workers:$PWD${PYTHONPATH:+:$PYTHONPATH}
TRITON_INTERPRET=0
PYTHONUNBUFFERED=1
export PYTHONPATH TRITON_INTERPRET PYTHONUNBUFFERED

processes=$(nproc)
[ "$processes" -gt 8 ] && processes=8 # each takes some of the GPU's memory; most of their time goes into compiling

has() {
    for module in "$@"; do
        "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" && continue
        echo "error: gpu: the part needs the Python package $module, which is not installed here" >&2
        return 1
    done
}

# Of pyproject.toml's settings those go that need plugins: a bare machine has pytest alone.
tests() {
    seconds=$1
    shift
    has pytest hypothesis || return 1
    beside=
    has xdist 2> /dev/null && beside="-n $processes --dist worksteal"
    # shellcheck disable=SC2086
    timeout -k 10 "$seconds" "$python" -m pytest -q -o addopts="--import-mode=importlib --strict-markers" \
        --continue-on-collection-errors --durations=10 $beside "$@"
}

kernels() {
    tests 480 tests/kernels
}

engine() {
    has numpy pydantic msgspec llguidance safetensors || return 1
    # shellcheck disable=SC2046
    tests 180 -m kernels $(grep -l "mark.kernels" tests/engine/test_*.py)
    found=$?
    processes=1 # a load takes nearly all of the GPU's memory
    tests 90 -k cuda tests/engine/test_gpu_load.py && return "$found"
}

benchmarks() {
    # shellcheck disable=SC2086
    has psutil rich && timeout -k 10 450 "$python" -m benchmarks.kernels $quick
}

failed=
for part in ${parts:-kernels engine benchmarks}; do
    echo "== $part"
    "$part" || failed="$failed $part"
done
[ -z "$failed" ] && exit 0
echo "failed:$failed" >&2
exit 1
