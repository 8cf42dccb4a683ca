#!/bin/sh
# Make .venv with the extra "local" or "dev" of this project, once for each state of pyproject.toml.
# TORCH_INDEX_URL names a package index to take torch from, for example one with builds for the CPU alone.
set -eu

extra=$1
sum=$(cksum < pyproject.toml | cut -d' ' -f1)
for stamp in ".venv/.installed-dev-$sum" ".venv/.installed-$extra-$sum"; do
    [ -e "$stamp" ] && exit 0
done

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" > /dev/null &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: python: 3.11 or later is needed and none is on PATH (on Debian: apt-get install python3 python3-venv)" >&2
    exit 2
fi

pip="env PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 .venv/bin/python -m pip install --quiet"

if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv || {
        rm -rf .venv
        echo "error: python: it cannot make a virtual environment (on Debian: apt-get install python3-venv)" >&2
        exit 2
    }
fi

torch='
import tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print(next(line for line in extras["worker"] if line.startswith("torch")))
'
if ! .venv/bin/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
    if [ -n "${TORCH_INDEX_URL:-}" ]; then
        echo "Installing torch into .venv from the index in TORCH_INDEX_URL (a build for the CPU: about 0.2 GB) ..."
        $pip --index-url "$TORCH_INDEX_URL" "$(.venv/bin/python -c "$torch")"
    elif [ "$(uname)" = Linux ]; then
        echo "Installing into .venv, once. The largest part is torch: with the CUDA libraries that come with it on Linux,"
        echo "about 3 GB to download and 5.6 GB on disk. Without a GPU set TORCH_INDEX_URL to an index with builds for"
        echo "the CPU (about 0.2 GB) and run this again; Ctrl-C stops here."
    fi
fi

echo "Installing paceline[$extra] into .venv ..."
$pip --editable ".[$extra]"
rm -f .venv/.installed-"$extra"-*
touch ".venv/.installed-$extra-$sum"
