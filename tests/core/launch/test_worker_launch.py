from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.config import parse
from paceline_core.launch import Binding, WorkerLaunch, build, to_manifest_field
from paceline_core.objects import InferenceService, resolve, validate
from paceline_workers.config import WorkerConfig
from paceline_workers.engine.page_files import ROOM

POD = Binding("chat-main-7f9", "0.0.0.0", 8000, "/etc/paceline", "/etc/paceline/trust/jwks.json", "/pages", 8001)
HOME = "/run/x/parts/chat-main-1"
PROCESS = Binding(
    "chat-main-1", "127.0.0.1", 20017, HOME, "/run/x/jwks.json", f"{HOME}/pages", 20018, "/venv/bin/python"
)
DISK = {"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "200Gi"}}


def service(**spec: Any) -> InferenceService:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team"},
        "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}], **spec},
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    return found


def launch(binding: Binding = PROCESS, **spec: Any) -> WorkerLaunch:
    resolved = resolve(service(**spec))
    return build(resolved, resolved.pools[0], "stable", binding)


def config(found: WorkerLaunch) -> WorkerConfig:
    (file,) = found.files
    return parse(WorkerConfig, yaml.safe_load(file.content), file.path)


def unbound(found: WorkerLaunch) -> WorkerLaunch:
    return replace(found, argv=(), env={}, files=(), port=0, metrics_port=0)


EMULATED: dict[str, Any] = {"engine": {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "20s"}}}


def test_a_worker_is_started_by_its_module_and_told_its_file() -> None:
    found = launch()
    assert found.argv == ("/venv/bin/python", "-m", "paceline_workers.main")
    assert found.env == {
        "PACELINE_CONFIG": "/run/x/parts/chat-main-1/worker.yaml",
        "PACELINE_LOG_LEVEL": "INFO",
    }
    assert [file.path for file in found.files] == [found.env["PACELINE_CONFIG"]]


def test_the_worker_reads_what_the_builder_wrote() -> None:
    read = config(launch(model={"source": "builtin://demo", "servedName": "demo"}, rollout={"drainTimeout": "90s"}))
    assert (read.name, read.service, read.pool) == ("chat-main-1", "team/chat", "main")
    assert read.served_names == ["demo", "team/chat"]
    assert (read.listen.host, read.listen.port) == ("127.0.0.1", 20017)
    assert read.model == "builtin://demo"
    assert str(read.trust_bundle) == "/run/x/jwks.json"
    assert read.drain_timeout_s == 90.0
    assert read.engine.emulate is None


def test_engine_settings_reach_the_worker() -> None:
    engine = {"maxModelLen": 512, "maxSeqs": 8, "stepTokens": 128, "kvCache": {"pageTokens": 32}, "prefixCache": False}
    read = config(launch(engine=engine, classes={"batch": {"batchWindow": "50ms"}})).engine
    assert (read.max_model_len, read.max_seqs, read.step_tokens, read.page_tokens) == (512, 8, 128, 32)
    assert read.prefix_cache is False
    assert read.batch_window_s == {"interactive": 0.003, "batch": 0.05, "offline": 0.04}


def test_warm_prefixes_reach_the_worker() -> None:
    assert config(launch(engine={"warmPrefixes": ["You are"]})).engine.warm_prefixes == ["You are"]
    assert "warm_prefixes" not in launch().files[0].content


def test_filters_of_the_output_reach_the_worker() -> None:
    words = {"name": "words", "stage": "output", "config": {"words": "cat"}, "failure": "open"}
    (read,) = config(launch(filters=[words])).filters
    assert (read.name, read.config, read.failure) == ("words", {"words": "cat"}, "open")
    assert "filters" not in launch().files[0].content


def test_batching_is_written_only_where_it_is_not_the_usual_one() -> None:
    assert config(launch(engine={"batching": "dynamic"})).engine.batching == "dynamic"
    plain = launch(engine={"batching": "continuous"})
    assert config(plain).engine.batching == "continuous"
    assert "batching" not in plain.files[0].content


def test_batch_invariance_is_written_only_where_it_is_asked_for() -> None:
    assert config(launch(engine={"batchInvariant": True})).engine.batch_invariant
    assert "batch_invariant" not in launch(engine={"batchInvariant": False}).files[0].content


def test_the_share_of_requests_to_trace_is_written_only_where_there_is_one() -> None:
    assert config(launch(telemetry={"tracing": {"sampleRatio": 0.05}})).trace_ratio == 0.05
    assert "trace_ratio" not in launch().files[0].content


def test_a_window_and_the_type_of_keys_and_values_reach_the_worker() -> None:
    read = config(launch(engine={"kvCache": {"dtype": "bf16", "attentionWindow": 512, "sinkTokens": 4}})).engine
    assert (read.kv_dtype, read.attention_window, read.sink_tokens) == ("bf16", 512, 4)
    plain = config(launch()).engine
    assert (plain.kv_dtype, plain.attention_window, plain.sink_tokens) == ("auto", None, 0)


def test_host_memory_for_pages_reaches_the_worker_and_is_asked_for() -> None:
    engine = {"kvCache": {"hostOffloadBytes": "1Gi"}}
    found = launch(engine=engine)
    assert config(found).engine.host_bytes == 1 << 30
    assert found.resources.memory - launch().resources.memory == 1 << 30
    assert config(launch()).engine.host_bytes == 0


def test_emulated_pages_in_host_memory_take_none_of_it() -> None:
    engine = {**EMULATED["engine"], "kvCache": {"hostOffloadBytes": "1Gi"}}
    found = launch(engine=engine)
    assert config(found).engine.host_bytes == 1 << 30
    assert found.resources.memory == launch(**EMULATED).resources.memory


def test_pages_on_disk_reach_the_worker_with_the_place_that_the_binding_gives_them() -> None:
    for binding in (POD, PROCESS):
        read = config(launch(binding, engine=DISK)).engine
        assert (read.disk_bytes, str(read.disk_path)) == (200 << 30, binding.page_dir)
    plain = launch()
    assert "disk" not in plain.files[0].content
    assert plain.resources.disk == 0


@given(st.integers(1 << 20, (64 << 40) - 1))
def test_the_room_for_pages_on_disk_holds_their_files_and_all_that_is_on_the_way(size: int) -> None:
    """A kubelet evicts a pod whose volume outgrows its limit; 16 KiB is the least page there is, and its name 64 B."""
    found = launch(engine={"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": str(size)}}).resources
    assert size + ROOM + 64 * (size // 16384) <= found.disk < 1.1 * size + (1 << 30)
    assert found.disk % (1 << 20) == 0


def test_pages_on_their_way_to_the_disk_and_back_take_memory_of_their_own() -> None:
    with_host = launch(engine={"kvCache": {"hostOffloadBytes": "1Gi"}}).resources
    assert launch(engine=DISK).resources.memory == with_host.memory + 2 * ROOM


def test_what_classes_reserve_reaches_the_worker_as_shares() -> None:
    classes = {"interactive": {"reservedPercent": 25}, "batch": {"reservedPercent": 0}}
    assert config(launch(classes=classes)).engine.class_reserved == {"interactive": 0.25}
    assert "class_reserved" not in launch(classes={"batch": {"reservedPercent": 0}}).files[0].content


def test_emulation_is_passed_on_and_asks_for_no_gpu() -> None:
    found = launch(pools=[{"name": "main", "accelerator": "h100"}], **EMULATED)
    emulate = config(found).engine.emulate
    assert emulate is not None
    assert (emulate.accelerator, emulate.model, emulate.cold_start_s) == ("h100", "llama-3.1-8b", 20.0)
    assert found.emulated
    assert found.resources.gpus == 0


def test_a_pod_and_a_process_differ_only_in_their_binding() -> None:
    process, pod = launch(PROCESS), launch(POD)
    assert config(pod).model_dump(exclude={"name", "listen", "metrics", "trust_bundle"}) == config(process).model_dump(
        exclude={"name", "listen", "metrics", "trust_bundle"}
    )
    assert unbound(pod) == unbound(process)


def test_a_gpu_pool_asks_for_its_gpus() -> None:
    resources = launch(pools=[{"name": "main", "accelerator": "h100", "gpusPerReplica": 2}]).resources
    assert (resources.gpus, resources.gpu_resource) == (2, "nvidia.com/gpu")


def test_a_worker_computes_on_what_its_pool_names_whatever_else_a_machine_has() -> None:
    gpus = launch(pools=[{"name": "main", "accelerator": "h100"}], engine={"kvCache": {"dtype": "fp8"}})
    assert (config(gpus).engine.device, config(gpus).engine.kv_dtype) == ("cuda", "fp8")
    assert config(launch()).engine.device == "cpu"
    assert "device" not in launch(**EMULATED).files[0].content


def test_labels_select_the_pod_and_carry_no_version() -> None:
    labels = launch().labels
    assert labels["paceline.dev/service"] == "chat"
    assert labels["paceline.dev/pool"] == "main"
    assert labels["paceline.dev/track"] == "stable"
    assert not any("version" in name for name in labels)


def test_literal_variables_are_added() -> None:
    assert launch(runtime={"env": [{"name": "HF_HOME", "value": "/cache"}]}).env["HF_HOME"] == "/cache"


@pytest.mark.parametrize("spec", [{}, EMULATED])
def test_the_grace_outlasts_the_drain(spec: dict[str, Any]) -> None:
    assert launch(rollout={"drainTimeout": "2m"}, **spec).grace_s > 120.0


@given(st.integers(min_value=0, max_value=3600))
def test_the_startup_probe_waits_for_the_whole_cold_start(cold_start: int) -> None:
    engine = {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": f"{cold_start}s"}}
    startup = launch(engine=engine).startup
    assert startup.path == "/readyz"
    assert startup.period_s * startup.failures > cold_start


def test_a_workers_last_words_name_the_manifests_field() -> None:
    said = "paceline worker: engine.page_tokens: 7 is no power of two"
    assert to_manifest_field(said) == "spec.engine.kvCache.pageTokens: 7 is no power of two"
    assert to_manifest_field("paceline worker: the engine ended") == "the engine ended"
    told = "paceline worker: filters[1].config.words: must hold at least one word"
    assert to_manifest_field(told) == "spec.filters[1].config.words: must hold at least one word"
    disk = "paceline worker: engine.disk_path: /pages cannot be used"
    assert to_manifest_field(disk) == "spec.engine.kvCache.diskOffloadBytes: /pages cannot be used"
    device = "paceline worker: engine.device: torch finds no CUDA GPU here"
    assert to_manifest_field(device) == "spec.pools[].accelerator: torch finds no CUDA GPU here"
    assert to_manifest_field("paceline worker: listen: is taken") == "listen: is taken"
    assert to_manifest_field("MemoryError: model: 3") == "MemoryError: model: 3"
