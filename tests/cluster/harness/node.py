"""The real node: containerd, kubelet, kube-proxy and CoreDNS, their settings and command lines.

containerd and the kubelet keep what they own in the run's private folders (memory, seen by the run alone). The
pods' network is point to point with the node as router, so a reply to a ClusterIP always passes the node's address
translation, whatever bridge filter the kernel has. The kubelet runs without cgroups for quality of service, which
works on both cgroup versions and without CAP_SYS_RESOURCE; a container's own limits hold. CoreDNS answers on the
node's address, for names of the cluster only.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.harness.credentials import NODE, Credentials
from tests.cluster.harness.images import PAUSE_IMAGE, mounts
from tests.cluster.harness.runs import Run
from tests.cluster.harness.space import NODE_IP, POD_RANGE
from tests.cluster.harness.tools import folder, program

CNI_PROGRAMS = "/usr/lib/cni"
SOCKET = "/run/containerd/containerd.sock"
DNS_READY_PORT = 8181
PROXY_READY_PORT = 10256


def pod_logs(run: Run) -> Path:
    """Where the kubelet keeps the logs of pods."""
    return run.folder / "logs" / "pods"


def containerd(run: Run) -> list[str]:
    """The container runtime."""
    settings = run.folder / "containerd.toml"
    settings.write_text(_containerd_settings(run))
    (run.folder / "base-spec.json").write_text(json.dumps(_base_spec()))
    (run.folder / "cni").mkdir()
    (run.folder / "cni" / "pods.conflist").write_text(json.dumps(_network()))
    # containerd finds its shim beside itself on PATH.
    return ["env", f"PATH={folder('containerd')}:/usr/sbin:/usr/bin:/sbin:/bin", "containerd", f"--config={settings}"]


def load_image(archive: Path) -> list[str]:
    """The command that loads an image; fails while containerd does not answer."""
    ctr = [str(program("ctr", "containerd")), f"--address={SOCKET}", "--namespace=k8s.io"]
    return [*ctr, "images", "import", str(archive)]


def kubelet(run: Run, credentials: Credentials) -> list[str]:
    """The node's agent."""
    resolv = run.folder / "resolv.conf"
    resolv.write_text("")
    settings = run.folder / "kubelet.json"
    settings.write_text(json.dumps(_kubelet_settings(run, resolv)))
    return [
        str(program("kubelet", "kubernetes")),
        f"--config={settings}",
        f"--kubeconfig={credentials.kubeconfig('kubelet')}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_IP}",
    ]


def kube_proxy(run: Run, credentials: Credentials) -> list[str]:
    """The Services' address translation."""
    settings = run.folder / "kube-proxy.json"
    settings.write_text(json.dumps(_proxy_settings(credentials)))
    return [str(program("kube-proxy", "kubernetes")), f"--config={settings}"]


def coredns(run: Run, credentials: Credentials) -> list[str]:
    """The cluster's names."""
    corefile = run.folder / "Corefile"
    corefile.write_text(f"""\
.:53 {{
    bind {NODE_IP}
    errors
    ready {NODE_IP}:{DNS_READY_PORT}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {credentials.kubeconfig("dns")}
        ttl 1
    }}
}}
""")
    return [str(program("coredns")), "-conf", str(corefile)]


def _containerd_settings(run: Run) -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""\
version = 3
root = '/run/containerd/root'
state = '/run/containerd/state'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp']
[grpc]
address = '{SOCKET}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE_IMAGE}'
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ['{CNI_PROGRAMS}']
conf_dir = '{run.folder}/cni'
[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
base_runtime_spec = '{run.folder}/base-spec.json'
"""


def _base_spec() -> dict[str, Any]:
    argv = [str(program("ctr", "containerd")), "oci", "spec"]
    spec: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=10).stdout)
    spec["mounts"] += mounts()
    return spec


def _network() -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/networks",
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}


def _proxy_settings(credentials: Credentials) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(credentials.kubeconfig("proxy"))},
        "hostnameOverride": NODE,
        "mode": "nftables",
        "nftables": {"minSyncPeriod": "100ms"},
        "clusterCIDR": POD_RANGE,
        # The kernel's connection limits are the machine's, not this run's: leave them.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _kubelet_settings(run: Run, resolv: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        "podLogsDir": str(pod_logs(run)),
        "clusterDNS": [NODE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolv),
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "shutdownGracePeriod": "0s",
    }
