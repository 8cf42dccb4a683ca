"""The emulated backend: step times of the planner, lateness, memory, words, cold start."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.manual import ManualTimer
from tests.engine.reference_scheduler import beams, request
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass
from paceline_planner import accelerators, shapes, steptime
from paceline_workers import demo
from paceline_workers.config import EmulateConfig, EngineConfig
from paceline_workers.engine.backends.base import StepResult
from paceline_workers.engine.backends.emulated import EmulatedBackend, Vocabulary
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.scheduling import Chunk, Scheduler, StepPlan
from paceline_workers.engine.scheduling.search import Search
from paceline_workers.messages import Sampling

EMULATE = EmulateConfig(accelerator="h100", model="llama-3.1-8b", cold_start_s=20.0)
ENGINE = EngineConfig(max_model_len=8192, step_tokens=2048)


def backend(timer: ManualTimer, engine: EngineConfig = ENGINE, emulate: EmulateConfig = EMULATE) -> EmulatedBackend:
    return EmulatedBackend.load(engine, emulate, timer, timer.pause)


def execute(emulated: EmulatedBackend, plan: StepPlan, since: float) -> StepResult:
    emulated.launch(plan, since)
    return emulated.collect()


def seconds(work: steptime.StepWork) -> float:
    return steptime.step_seconds(shapes.LLAMA_3_1_8B, accelerators.H100, work)


def decoding(name: str, prompt: int, seed: int = 0) -> Chunk:
    entry = request(name, [9] * prompt, 99)
    entry.tokens.append(17)
    entry.sampling = Sampling(seed=seed)
    return Chunk(entry, prompt, 1, True)


def test_the_cold_start_takes_its_stages_time_before_the_backend_is_ready() -> None:
    timer = ManualTimer()
    facts = backend(timer).facts
    assert timer.time == pytest.approx(120.0)
    assert list(facts.stages) == ["schedule", "pull", "load", "warm"]
    assert sum(facts.stages.values()) == pytest.approx(20.0)
    assert facts.emulated


def test_a_step_that_lasts_says_so_again_and_again() -> None:
    timer = ManualTimer()
    slow = backend(timer, emulate=EmulateConfig(accelerator="l4", model="llama-3.1-8b"))
    entry = request("a", [9] * 16_000)
    slow.launch(StepPlan((Chunk(entry, 0, 16_000, True),)), timer.now())
    signs: list[float] = []
    executed = slow.collect(lambda: signs.append(timer.now()))
    assert executed.seconds is not None
    assert executed.seconds > 2.0
    assert len(signs) == int(executed.seconds)
    assert executed.lateness == pytest.approx(0.0)


def test_the_pool_is_what_the_accelerators_memory_leaves() -> None:
    facts = backend(ManualTimer()).facts
    assert facts.page_bytes == 64 * 128 * 1024
    tokens = facts.pages * 64
    assert 400_000 < tokens < 500_000
    assert facts.limits.max_model_len == 8192


def test_without_a_length_the_models_context_is_the_limit() -> None:
    facts = backend(ManualTimer(), EngineConfig()).facts
    assert facts.limits.max_model_len == 131072


def test_a_step_ends_at_the_planners_time_whatever_the_host_did_meanwhile() -> None:
    timer = ManualTimer()
    emulated = backend(timer)
    plan = StepPlan((decoding("a", 1000), decoding("b", 3000)))
    since = timer.time
    timer.time += 0.002
    executed = execute(emulated, plan, since)
    assert timer.time - since == pytest.approx(seconds(steptime.StepWork(sequences=2, kv_tokens=4002)))
    assert executed.lateness == 0.0
    assert len(executed.samples) == 2


def test_a_mixed_step_takes_the_time_of_its_chunk_and_its_decodes() -> None:
    timer = ManualTimer()
    emulated, since = backend(timer), timer.time
    plan = StepPlan((decoding("a", 1000), Chunk(request("b", [9] * 4096), 1024, 2047, False)))
    executed = execute(emulated, plan, since)
    work = steptime.StepWork(prefill_tokens=2047, context=1024 + 1024, sequences=1, kv_tokens=1001)
    assert timer.time - since == pytest.approx(seconds(work))
    assert len(executed.samples) == 1


def test_lateness_is_how_long_after_its_time_a_step_ended() -> None:
    timer = ManualTimer(late=0.0015)
    emulated = backend(timer)
    assert execute(emulated, StepPlan((decoding("a", 10),)), timer.time).lateness == pytest.approx(0.0015)


def test_host_work_longer_than_the_step_is_lateness_too() -> None:
    timer = ManualTimer()
    emulated, since = backend(timer), timer.time
    timer.time += 1.0
    whole = seconds(steptime.StepWork(sequences=1, kv_tokens=11))
    assert execute(emulated, StepPlan((decoding("a", 10),)), since).lateness == pytest.approx(1.0 - whole)


def test_the_prior_of_the_fit_is_the_planners() -> None:
    facts = backend(ManualTimer()).facts
    predicted = facts.prior.seconds(prefill_tokens=2048, sequences=0, kv_tokens=0, context=0)
    assert predicted == pytest.approx(seconds(steptime.StepWork(prefill_tokens=2048)), rel=0.25)


def test_a_stream_resumed_elsewhere_goes_on_with_the_same_words() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    whole = request("a", [5, 6, 7], 20)
    whole.sampling = Sampling(seed=11)
    for _ in range(12):
        whole.tokens.append(vocabulary.draw(whole).token)
    resumed = request("b", whole.tokens[:9], 20)
    resumed.sampling = Sampling(seed=11)
    while len(resumed.tokens) < len(whole.tokens):
        resumed.tokens.append(vocabulary.draw(resumed).token)
    assert resumed.tokens == whole.tokens


def test_seeds_and_choices_give_different_words() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)

    def text(seed: int, choice: int) -> list[int]:
        entry = replace(request("a", [5]), sampling=Sampling(seed=seed), choice=choice)
        for _ in range(10):
            entry.tokens.append(vocabulary.draw(entry).token)
        return entry.tokens

    assert len({tuple(text(seed, choice)) for seed in (0, 1, 2**63) for choice in (0, 1)}) == 6


def test_a_beam_may_choose_from_distinct_words_in_order() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    search = Search(4, 20, frozenset({1, 2}))
    candidates = vocabulary.draw(beams("a", [5], search)).candidates
    assert len({word for word, _ in candidates}) == len(candidates) == search.keep
    assert [logprob for _, logprob in candidates] == sorted((logprob for _, logprob in candidates), reverse=True)


def test_words_are_whole_words_of_the_demo_tokenizer() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    assert len(vocabulary.words) > 100
    texts = {number: text for text, number in _ids().items()}
    assert all(texts[word][0] == "Ġ" and texts[word][1:].isalpha() for word in vocabulary.words)


def test_logprobs_are_those_of_an_even_choice() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    entry = replace(request("a", [5]), sampling=Sampling(logprobs=2))
    sample = vocabulary.draw(entry)
    assert sample.logprobs is not None
    chosen, top = sample.logprobs
    assert chosen == pytest.approx(top[0][1])
    assert [word for word, _ in top] == [sample.token, vocabulary.words[0]]


def test_a_prompts_tokens_are_as_likely_as_any_word() -> None:
    vocabulary = Vocabulary.read(demo.FOLDER)
    entry = replace(request("a", [5, 6, 7, 8]), prompt_logprobs=2)
    chunk = Chunk(entry, 1, 3, True, 2)
    even = -math.log(len(vocabulary.words))
    candidates = [(word, even) for word in vocabulary.words[:2]]
    assert vocabulary.scores(chunk) == [(even, 1, candidates)] * 2


@cases(
    ("emulate", "engine", "message"),
    [
        ({"accelerator": "abacus"}, {}, "engine.emulate.accelerator: 'abacus' is not known"),
        ({"model": "gpt-9"}, {}, "engine.emulate.model: 'gpt-9' is not a known shape"),
        ({"cold_start_s": -1.0}, {}, "engine.emulate.coldStart: -1.0 seconds is negative"),
        ({"model": "llama-3.3-70b"}, {}, "no room for a KV cache"),
        ({}, {"max_model_len": 200_000}, "engine.max_model_len: 200000 is over the model's context of 131072"),
        ({}, {"max_model_len": 8192, "kv_pages": 100}, "do not fit into the KV memory of 6400 tokens"),
        ({}, {"kv_bytes": 5}, "engine.kv_bytes: 5 bytes do not hold one page"),
        ({}, {"batch_window_s": {"urgent": 1.0}}, "engine.batch_window_s: 'urgent' is no class"),
        ({}, {"tpot_s": {"urgent": 1.0}}, "engine.tpot_s: 'urgent' is no class"),
    ],
)
def test_what_cannot_be_emulated_is_refused_by_field(
    emulate: dict[str, object], engine: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        backend(
            ManualTimer(),
            EngineConfig.model_validate(engine),
            EmulateConfig.model_validate({**EMULATE.model_dump(), **emulate}),
        )
    assert message in str(caught.value)


def test_promises_shares_and_queues_by_class_reach_the_scheduler() -> None:
    engine = {
        "tpot_s": {"interactive": 0.05},
        "class_weights": {"offline": 3.0},
        "class_waiting": {"batch": 7},
        "batching": "static",
    }
    limits = backend(ManualTimer(), EngineConfig.model_validate(engine), EMULATE).facts.limits
    assert limits.tpot == {RequestClass.INTERACTIVE: 0.05}
    assert limits.weights == {RequestClass.OFFLINE: 3.0}
    assert limits.class_waiting == {RequestClass.BATCH: 7}
    assert limits.batching == "static"


def test_a_broken_tokenizer_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        Vocabulary.read(tmp_path)


def test_sixteen_streams_take_few_more_seconds_than_one() -> None:
    def run(streams: int) -> float:
        timer = ManualTimer()
        emulated = backend(timer)
        facts = emulated.facts
        core = Scheduler(KVCacheManager(facts.pages, facts.limits.page_tokens), facts.limits)
        for number in range(streams):
            core.submit(request(f"r{number}", [number + 5] * 100, 50))
        begin = timer.time
        while len(core.waiting) or core.running:
            plan = core.step(timer.time)
            core.commit(plan, execute(emulated, plan, timer.time).samples, timer.time)
        return timer.time - begin

    assert run(16) < 2 * run(1)


def test_pages_over_the_hosts_link_take_their_time_and_copies_on_the_device_none() -> None:
    timer = ManualTimer()
    emulated = backend(timer, EngineConfig(host_bytes=1 << 34))
    step = StepPlan((Chunk(request("a", [1, 2, 3]), 0, 3, True),))
    moved = (Copy(CopyKind.OUT, 0, 0), Copy(CopyKind.IN, 0, 0), Copy(CopyKind.DEVICE, 0, 1))

    def seconds(plan: StepPlan) -> float:
        begin = timer.time
        execute(emulated, plan, begin)
        return timer.time - begin

    facts = emulated.facts
    assert facts.host_pages == (1 << 34) // facts.page_bytes
    assert seconds(replace(step, copies=moved)) - seconds(step) == pytest.approx(2 * facts.page_copy_s)
    assert facts.page_copy_s == pytest.approx(facts.page_bytes / 50e9)


def test_an_emulated_worker_counts_pages_by_the_type_and_the_window_that_are_asked_for() -> None:
    plain, wide = (backend(ManualTimer(), EngineConfig(kv_dtype=dtype)) for dtype in ("auto", "fp32"))
    assert wide.facts.page_bytes == 2 * plain.facts.page_bytes
    narrow = backend(ManualTimer(), EngineConfig(attention_window=256, sink_tokens=4, kv_pages=8)).facts
    assert narrow.attention_window == AttentionWindow(256, 4)
    assert narrow.limits.max_model_len > 8 * 64


def _ids() -> dict[str, int]:
    ids: dict[str, int] = json.loads((demo.FOLDER / "tokenizer.json").read_text())["model"]["vocab"]
    return ids
