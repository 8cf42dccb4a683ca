"""What the makers of a model advise: where a text ends, and how to sample."""

from pathlib import Path

import pytest
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.model.folders import edit, refusal
from tests.engine.peer import submit

from paceline_workers.engine.loop import started
from paceline_workers.engine.model import config
from paceline_workers.engine.scheduling import Request


def test_eos_comes_from_the_generation_config_first(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[5, 6])
    assert config.read(folder).generation.eos_ids == (5, 6)
    (folder / "generation_config.json").unlink()
    assert config.read(folder).generation.eos_ids == (210,)
    edit(folder / "config.json", eos_token_id=None)
    assert config.read(folder).generation.eos_ids == ()


@pytest.mark.parametrize("ids", ["</s>", [1, "x"], True, 1.5])
def test_an_eos_that_is_no_id_is_refused_naming_the_file_that_says_it(folder: Path, ids: object) -> None:
    edit(folder / "generation_config.json", eos_token_id=ids)
    text = f"{folder / 'generation_config.json'}: eos_token_id: {ids!r} is neither a token id nor a list"
    assert refusal(folder).startswith(text)
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", eos_token_id=ids)
    assert refusal(folder).startswith(f"{folder / 'config.json'}: eos_token_id")


def test_the_makers_sampling_is_told_and_nothing_else(folder: Path) -> None:
    advised = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.05}
    edit(folder / "generation_config.json", **advised, max_length=20, do_sample=True)
    assert started(load(folder).facts).defaults == advised
    (folder / "generation_config.json").unlink()
    assert started(load(folder).facts).defaults == {}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -0.1, "is not a number of at least 0"),
        ("temperature", float("nan"), "is not a number of at least 0"),
        ("top_p", 0, "is not a number above 0 and at most 1"),
        ("top_p", "0.9", "is not a number above 0 and at most 1"),
        ("top_k", 2.5, "is not a whole number of at least -1"),
        ("min_p", True, "is not a number from 0 to 1"),
        ("repetition_penalty", 0, "is not a number above 0"),
    ],
)
def test_sampling_that_cannot_be_is_refused(folder: Path, field: str, value: object, message: str) -> None:
    edit(folder / "generation_config.json", **{field: value})
    assert refusal(folder) == f"{folder / 'generation_config.json'}: {field}: {value!r} {message}"


def test_a_request_stops_at_the_models_own_eos(folder: Path) -> None:
    expected, backend = reference.open_folder(folder), load(folder)
    prompt = [1, 2, 3]
    free = Driver(backend)
    free.submit("a", prompt, 30)
    free.drain()
    text = free.text("a")
    assert text == expected.greedy(prompt, text)
    edit(folder / "generation_config.json", eos_token_id=text[5])
    again = load(folder)
    stopped = Driver(again)
    stopped.core.submit(Request.of(submit("a", prompt, 30), again.facts.eos_ids, 0.0))
    stopped.drain()
    assert stopped.text("a") == text[: text.index(text[5]) + 1]
    assert stopped.events[-1].finish == "stop"


def test_eos_is_ignored_when_asked() -> None:
    entry = Request.of(submit("a", [1, 2, 3], stop_ids=[7], ignore_eos=True), (5, 6), 0.0)
    assert entry.stop_ids == {7}
    assert Request.of(submit("a", [1, 2, 3], stop_ids=[7]), (5, 6), 0.0).stop_ids == {5, 6, 7}
