#!/bin/sh
# Install what the tests run against and is no Python package: by apt when root, else say what is missing.
# `services.sh cluster` adds what the tests on a real Kubernetes need.
set -eu

missing=
need() { # PACKAGE: a file or command it brings
    case $2 in
        /*) [ -e "$2" ] || missing="$missing $1" ;;
        *) command -v "$2" > /dev/null || missing="$missing $1" ;;
    esac
}

PATH=$PATH:/usr/sbin:/sbin
need prometheus prometheus
need redis-server redis-server
need curl curl
if [ "${1:-}" = cluster ]; then # what the kubelet, containerd and kube-proxy call
    need runc runc
    need containernetworking-plugins /usr/lib/cni/bridge
    need nftables nft
    need iptables iptables
    need conntrack conntrack
    need iproute2 ip
    need util-linux nsenter
    need mount mount
    need ca-certificates /etc/ssl/certs/ca-certificates.crt
fi
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
