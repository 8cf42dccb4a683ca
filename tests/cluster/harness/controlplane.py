"""The command lines of the control plane: etcd, API server, controller-manager, scheduler.

Role-based access stays on, so roles are tested as they are. The audit log holds every write, one line each, written
before the reply is sent: it is the oracle for "nothing was written". With stock client limits the
controller-manager makes about 4 Deployments a second whatever a test does; a run may raise them and says so in its
versions line.
"""

import json
from pathlib import Path

from tests.cluster.harness.credentials import Credentials
from tests.cluster.harness.runs import Run
from tests.cluster.harness.space import NODE_IP, POD_RANGE, SERVICE_RANGE
from tests.cluster.harness.tools import program

# Less garbage collection for more memory: the control plane is a bystander of what is tested.
GO_ENVIRONMENT = {"GOGC": "300"}
RAISED_LIMITS = ("--kube-api-qps=5000", "--kube-api-burst=10000")
_ETCD = "http://127.0.0.1:2379"
_PEER = "http://127.0.0.1:2380"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


def audit_path(run: Run) -> Path:
    """The audit log of a run."""
    return run.folder / "audit.log"


def etcd(run: Run) -> list[str]:
    """The store; it never waits for the disk, which a test does not need."""
    return [
        str(program("etcd")),
        f"--data-dir={run.folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_PEER}",
        f"--initial-advertise-peer-urls={_PEER}",
        f"--initial-cluster=default={_PEER}",
        "--log-level=warn",
    ]


def api_server(run: Run, credentials: Credentials) -> list[str]:
    """The API server."""
    policy = run.folder / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    return [
        str(program("kube-apiserver", "kubernetes")),
        f"--etcd-servers={_ETCD}",
        "--secure-port=6443",
        f"--advertise-address={NODE_IP}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={credentials.file('apiserver.crt')}",
        f"--tls-private-key-file={credentials.file('apiserver.key')}",
        f"--token-auth-file={credentials.file('tokens.csv')}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.file('sa.key')}",
        f"--service-account-signing-key-file={credentials.file('sa.key')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit_path(run)}",
        "--audit-log-mode=blocking",
        "--profiling=false",
    ]


def controller_manager(credentials: Credentials, *, raised: bool) -> list[str]:
    """The built-in controllers."""
    return [
        str(program("kube-controller-manager", "kubernetes")),
        f"--kubeconfig={credentials.kubeconfig('controller-manager')}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={credentials.file('sa.key')}",
        f"--root-ca-file={credentials.file('ca.crt')}",
        f"--cluster-cidr={POD_RANGE}",
        "--leader-elect=false",
        *(RAISED_LIMITS if raised else ()),
    ]


def scheduler(credentials: Credentials, *, raised: bool) -> list[str]:
    """The scheduler."""
    return [
        str(program("kube-scheduler", "kubernetes")),
        f"--kubeconfig={credentials.kubeconfig('scheduler')}",
        "--leader-elect=false",
        *(RAISED_LIMITS if raised else ()),
    ]
