"""The network and mount namespace that one run lives in, and the way into it.

A process holds both namespaces; they and every mount and firewall rule in them are gone when the last process of
the run is. There is no uplink: a bridge without ports carries the node's address, so nothing inside can reach
anything outside. Folders that Kubernetes' programs write at fixed places are memory of the run's own.
"""

import subprocess
from dataclasses import dataclass

from tests.cluster.harness.parts import Part, wait_until
from tests.cluster.harness.runs import Run

NODE_IP = "192.0.2.10"
POD_RANGE = "198.18.0.0/17"
FAKE_POD_RANGE = "198.18.128.0/17"
SERVICE_RANGE = "198.19.0.0/16"
FIRST_SERVICE_IP = "198.19.0.1"
PRIVATE_FOLDERS = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet")
# What a kubelet sets for the whole machine; inside, these files already hold it, so the machine's values stay.
KERNEL_TUNABLES = (
    "vm/overcommit_memory=1",
    "vm/panic_on_oom=0",
    "kernel/panic=10",
    "kernel/panic_on_oops=1",
    "kernel/keys/root_maxkeys=1000000",
    "kernel/keys/root_maxbytes=25000000",
)

_SCRIPT = f"""
set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip link add node0 type bridge
ip address add {NODE_IP}/24 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
for folder in {" ".join(PRIVATE_FOLDERS)}; do
    mkdir -p $folder
    mount -t tmpfs paceline $folder
done
for tunable in {" ".join(KERNEL_TUNABLES)}; do
    file=/run/containerd/$(echo ${{tunable%=*}} | tr / .)
    echo ${{tunable#*=}} > $file
    mount --bind $file /proc/sys/${{tunable%=*}}
done
echo ready
exec sleep infinity
"""


@dataclass(frozen=True, slots=True)
class Space:
    """The namespaces of a run, held by one process."""

    holder: Part

    def enter(self, *namespaces: str) -> list[str]:
        """The words before a command that runs it inside; `ip netns exec` would hide /sys from the kubelet."""
        return ["nsenter", f"--target={self.holder.pid}", *(f"--{each}" for each in namespaces), "--"]


def open_space(run: Run) -> Space:
    """Make the namespaces of a run."""
    argv = ["unshare", "--net", "--mount", "--propagation=slave", "sh", "-c", _SCRIPT]
    holder = Part("holder", argv, run.folder / "logs" / "holder.log", run.environment())
    holder.start()
    wait_until("the network of the cluster stands", lambda: holder.tail(1) == "ready", [holder], 15)
    return Space(holder)


def run_inside(space: Space, run: Run, argv: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run one command in the run's network, with the files of this machine."""
    words = ["env", *(f"{key}={value}" for key, value in run.environment().items()), *argv]
    return subprocess.run(
        [*space.enter("net"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
    )
