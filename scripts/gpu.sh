#!/bin/sh
# Test the kernels on this machine's GPU, then measure them. Downloads and installs nothing.
set -u
usage='Usage: make gpu ARGS="[--quick] [kernels] [engine] [benchmarks]"; no part named: all, 20 minutes at most.'
cd "$(dirname "$0")/.."

quick=
parts=
for word in "$@"; do
    case $word in
        -h | --help)
            echo "$usage"
            exit 0
            ;;
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
[ "$processes" -gt 12 ] && processes=12 # each takes some of the GPU's memory; most of their time goes into compiling

has() {
    missing=
    for module in "$@"; do
        "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" ||
            missing="$missing $module"
    done
    [ -z "$missing" ] && return
    echo "error: gpu: $part needs Python packages that are not installed here:$missing" >&2
    return 1
}

# Out of time is as Ctrl-C: who is interrupted still tells what was found. Only who then hangs is killed.
within() {
    seconds=$1
    shift
    timeout --foreground -s INT -k 20 "$seconds" "$@"
}

# Of pyproject.toml's settings those go that need plugins: a bare machine has pytest alone.
tests() {
    limit=$1
    shift
    has pytest hypothesis || return 1
    beside=
    has xdist 2> /dev/null && beside="-n $processes --dist worksteal"
    # shellcheck disable=SC2086
    within "$limit" "$python" -m pytest -v -o addopts="--import-mode=importlib --strict-markers" \
        --continue-on-collection-errors --durations=10 $beside "$@"
}

# Tests marked real start other processes, and need no GPU.
kernels() {
    tests 430 -m "not real" tests/kernels
}

engine() {
    has numpy pydantic msgspec llguidance safetensors transformers prometheus_client psutil rich || return 1
    # shellcheck disable=SC2046
    tests 180 -m kernels $(grep -l "mark.kernels" tests/engine/test_*.py)
    found=$?
    # A load takes nearly all of the GPU's memory.
    (processes=1 && tests 90 -k cuda tests/engine/test_gpu_load.py) && return "$found"
}

benchmarks() {
    has psutil rich || return 1
    has numpy pydantic msgspec safetensors prometheus_client || echo "its step is not measured, all else is" >&2
    within 400 "$python" -m benchmarks.kernels $quick
}

failed=
for part in ${parts:-kernels engine benchmarks}; do
    echo "== $part"
    "$part" || failed="$failed $part"
done
[ -z "$failed" ] && exit 0
echo "failed:$failed" >&2
exit 1
