#!/bin/sh
# Install what the tests run against and is no Python package: by apt when root, else say what is missing.
set -eu

missing=
command -v prometheus > /dev/null || missing="$missing prometheus"
[ -x .venv/bin/python ] || python3 -c 'import ensurepip' 2> /dev/null || missing="$missing python3-venv"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "error: the tests need$missing; install it (on Debian, as root: apt-get install$missing)" >&2
    exit 2
fi

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -q
# shellcheck disable=SC2086 # a list of package names
apt-get install -q -y --no-install-recommends $missing < /dev/null
