"""Models whose files say things in less common ways compute what `transformers` computes from the same folder."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import reference
from tests.engine.driver import load
from tests.engine.greedy import OUR_ERROR
from tests.engine.model.folders import edit, refusal
from tests.engine.reference import LINEAR, VOCAB, YARN, Reference
from tests.engine.reference_scheduler import request
from torch import Tensor

from paceline_workers.engine.scheduling import Chunk, StepPlan

pytestmark = pytest.mark.models
WEIGHTS = "model.safetensors"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
PLAIN = {"rope_type": "default", "rope_theta": 500000.0}
KINDS = ("llama", "mistral", "qwen2", "qwen3")
ALTERNATING = ["sliding_attention", "full_attention"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = reference.write(tmp_path_factory.mktemp(kind), kind).folder
        return made[kind]

    return of


def tokens(count: int = 60) -> list[int]:
    chance = random.Random(7)
    return [chance.randrange(VOCAB) for _ in range(count)]


def ours(folder: Path) -> Tensor:
    """Logits of the last of `tokens()`."""
    backend = load(folder, step_tokens=512)
    entry = request("a", tokens())
    entry.pages = list(range(4))
    plan = StepPlan((Chunk(entry, 0, len(tokens()), True),))
    return backend.decoder(backend.decoder.lay_out(plan, 16), backend.cache)[0]


def equal(folder: Path, expected: Reference) -> bool:
    return bool((ours(folder) - expected.exact(tokens())[-1]).abs().max() <= OUR_ERROR * expected.error)


def tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    held = load_file(folder / WEIGHTS)
    change(held)
    save_file(held, folder / WEIGHTS, metadata={"format": "pt"})


@pytest.fixture
def tied(folders: Callable[[str], Path], tmp_path: Path) -> Path:
    return shutil.copytree(folders("llama"), tmp_path / "tied")


def test_another_output_matrix_is_used_although_the_config_ties_it(tied: Path) -> None:
    plain = ours(tied)
    tensors(tied, lambda held: held.update({HEAD: torch.randn(VOCAB, 64) / 8}))
    assert equal(tied, reference.open_folder(tied))
    assert not torch.allclose(ours(tied), plain)
    assert not load(tied).decoder.config.shape.tied


def test_an_equal_output_matrix_is_tied_and_takes_no_memory(tied: Path) -> None:
    plain = ours(tied)
    tensors(tied, lambda held: held.update({HEAD: held[EMBEDDING].clone()}))
    assert torch.equal(ours(tied), plain)
    decoder = load(tied).decoder
    assert decoder.head.weight is decoder.embedding


def test_a_tied_matrix_may_be_stored_as_the_output_matrix(tied: Path) -> None:
    plain = ours(tied)
    tensors(tied, lambda held: held.update({HEAD: held.pop(EMBEDDING)}))
    assert torch.equal(ours(tied), plain)
    assert equal(tied, reference.open_folder(tied))


def test_mistral_with_types_of_layers_slides_in_those_alone(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders("mistral"), tmp_path / "mistral")
    for types in (ALTERNATING, ["full_attention"] * 2, ["sliding_attention"] * 2, None):
        for kind in ("mistral", "ministral"):
            edit(folder / "config.json", model_type=kind, sliding_window=8, layer_types=types)
            assert equal(folder, reference.open_folder(folder)), (kind, types)


@pytest.mark.parametrize("kind", KINDS)
def test_rotary_parameters_of_each_type_of_layer_mean_what_one_for_all_means(
    folders: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    folder = shutil.copytree(folders(kind), tmp_path / kind)
    for each in (PLAIN, YARN):
        edit(folder / "config.json", rope_parameters=each, sliding_window=None)
        expected = reference.open_folder(folder)
        edit(folder / "config.json", rope_parameters=dict.fromkeys(ALTERNATING, each))
        assert equal(folder, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rotary_parameters_that_differ_between_layers_are_refused_by_name(
    folders: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    folder = shutil.copytree(folders(kind), tmp_path / kind)
    edit(folder / "config.json", rope_parameters={"linear_attention": PLAIN})
    assert "config.json: rope_parameters: must give the same parameters to layers of" in refusal(folder)
    if kind == "llama":
        return
    layers = {"layer_types": ALTERNATING, "use_sliding_window": True, "sliding_window": 8}
    edit(folder / "config.json", **layers, rope_parameters={"full_attention": PLAIN, "sliding_attention": LINEAR})
    assert "layers of full_attention and sliding_attention" in refusal(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"rope_parameters": PLAIN, "rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 300000.0},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0}, "rope_theta": 300000.0},
    ],
)
def test_a_config_with_both_spellings_is_read_as_transformers_reads_it(
    folders: Callable[[str], Path], tmp_path: Path, fields: dict[str, object]
) -> None:
    folder = shutil.copytree(folders("qwen3"), tmp_path / "both")
    edit(folder / "config.json", **fields)
    assert equal(folder, reference.open_folder(folder))


def test_a_factor_of_rotation_that_is_null_counts_as_absent(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders("llama"), tmp_path / "null")
    edit(folder / "config.json", rope_parameters=PLAIN)
    path = folder / "config.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "partial_rotary_factor": null}')
    assert equal(folder, reference.open_folder(folder))
