"""Chat templates: with the helpers that `transformers` gives, sandboxed, and judged at start."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_workers import demo
from paceline_workers.server.text.chat import ChatTemplate

LOOP = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"


def now() -> datetime:
    return datetime(2026, 3, 4, tzinfo=UTC)


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>"}, now, "test")


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_the_demo_template_renders_its_turns() -> None:
    ours = ChatTemplate.load(demo.FOLDER, {}, now)
    assert ours is not None
    rendered = ours.render([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is TTFT?"}])
    assert rendered == "<|system|>Be brief.<|end|><|user|>What is TTFT?<|end|><|assistant|>"


def test_helpers_and_special_tokens_are_there() -> None:
    source = "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages|tojson }}{% if add_generation_prompt %}>{% endif %}"
    assert template(source).render(user("é")) == '<s>2026[{"role": "user", "content": "é"}]>'


def test_json_is_written_with_the_options_of_json_dumps() -> None:
    source = "{{ messages[0].content|tojson(true, indent=1, separators=(';', '='), sort_keys=true) }}"
    value = {"b": "é<", "a": [1]}
    expected = json.dumps(value, ensure_ascii=True, indent=1, separators=(";", "="), sort_keys=True)
    assert template(source).render([{"role": "user", "content": value}]) == expected


def test_what_is_marked_as_generated_is_written_with_assignments_of_its_own() -> None:
    marked = "{% generation %}{% set x = 2 %}{{ m.content }}{{ x }}{% endgeneration %}"
    source = f"{{% for m in messages %}}{{% set x = 1 %}}{marked}{{{{ x }}}}{{% endfor %}}"
    assert template(source).render([*user("a"), *user("b")]) == "a21b21"


def test_loop_controls_work() -> None:
    source = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
    assert template(source).render([*user("a"), *user("b")]) == "a"


def test_what_the_template_refuses_is_the_clients_fault_in_its_words() -> None:
    source = "{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}"
    with pytest.raises(RequestError, match="one message only") as caught:
        template(source).render([*user("a"), *user("b")])
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "messages")


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        "{{ no_such_function() }}",
        "{{ ().__class__.__bases__[0].__subclasses__()() }}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_broken_or_hostile_template_stops_the_start(source: str) -> None:
    with pytest.raises(InvalidInput, match="test: the chat template fails"):
        template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% if not tools %}{{ raise_exception('tools only') }}{% endif %}",
        "{{ raise_exception('not without a picture') }}",
        "{% if messages[0].role != 'system' %}{{ 1 / 0 }}{% endif %}a",
        "{% for tool in tools %}{{ tool.function.name }}{% endfor %}",
        "{{ functions + 'a' }}",
    ],
)
def test_a_template_that_takes_no_bare_greeting_is_loaded_and_refuses_it_as_a_request(source: str) -> None:
    with pytest.raises(RequestError, match="chat template refuses"):
        template(source).render(user("a"))


def test_a_developers_turn_is_a_systems_where_the_template_does_not_know_the_role() -> None:
    turns = [{"role": "developer", "content": "a"}, *user("b")]
    assert template(LOOP).render(turns) == "[system]a[user]b"
    knows = "{% for m in messages if m.role in ['developer', 'user'] %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert template(knows).render(turns) == "[developer]a[user]b"
    spoken = "{# 'developer' #}From the developer: {{ messages[0].role }}"
    assert template(spoken).render(turns) == "From the developer: system"


def test_a_template_file_comes_before_the_settings(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "settings"}))
    (folder / "chat_template.jinja").write_text("file")
    loaded = ChatTemplate.load(folder, {}, now)
    assert loaded is not None
    assert loaded.render(user("a")) == "file"


def test_the_default_of_several_templates_is_taken(folder: Path) -> None:
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": LOOP}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    loaded = ChatTemplate.load(folder, {}, now)
    assert loaded is not None
    assert loaded.render(user("a")) == "[user]a"


def test_a_folder_without_a_template_has_none(folder: Path) -> None:
    assert ChatTemplate.load(folder, {}, now) is None


def test_a_template_that_is_no_text_is_named(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"chat_template\.jinja: cannot be read"):
        ChatTemplate.load(folder, {}, now)
