"""Questions that the demo model never saw: the worker, many at once, says word for word what `transformers` says."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from openai import OpenAI
from tests.worker.processes import LIMIT_S, worker_process

from paceline_workers.demo import FOLDER

pytestmark = pytest.mark.real

HELD_OUT = Path(__file__).parents[2] / "tools" / "demo_model" / "held_out.yaml"
MOST_TOKENS = 64


def by_transformers(questions: list[str]) -> list[str]:
    torch.set_num_threads(1)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(FOLDER)

    def text(question: str) -> str:
        turns = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        output = model.generate(**prompt, max_new_tokens=MOST_TOKENS, do_sample=False)
        return str(tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))

    return [text(question) for question in questions]


def test_the_texts_are_those_of_transformers(tmp_path: Path) -> None:
    questions = [str(item["question"]) for item in yaml.safe_load(HELD_OUT.read_text(encoding="utf-8"))]
    assert len(questions) >= 20
    with worker_process(tmp_path, watchdog_s=LIMIT_S, engine={"threads": 1}) as worker:
        worker.ready()
        client = OpenAI(base_url=f"{worker.url}/v1", api_key="none", timeout=LIMIT_S, max_retries=0)

        def ask(question: str) -> str:
            messages: Any = [{"role": "user", "content": question}]
            answer = client.chat.completions.create(
                model="chat", messages=messages, temperature=0, max_tokens=MOST_TOKENS
            )
            return answer.choices[0].message.content or ""

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(ask, questions))
    assert answers == by_transformers(questions)
