"""lm-eval's `local-completions` over a task of one file: how likely each choice is, and whether it is greedy."""

import json
import os
import sys

from lm_eval import simple_evaluate

model, tokenizer, documents = sys.argv[1:]
task = {
    "task": "paceline_choices",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": documents}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{context}}",
    "doc_to_choice": "choices",
    "doc_to_target": 0,
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}],
}
server = {
    "model": model,
    "base_url": os.environ["OPENAI_BASE_URL"] + "/completions",
    "tokenizer": tokenizer,
    "max_length": 512,
    "max_retries": 1,
}
found = simple_evaluate(model="local-completions", model_args=server, tasks=[task], bootstrap_iters=0)
samples = found["samples"]["paceline_choices"]
print(
    json.dumps(
        {
            "accuracy": found["results"]["paceline_choices"]["acc,none"],
            "loglikelihoods": [[response[0] for response in sample["filtered_resps"]] for sample in samples],
            "greedy": [[response[1] for response in sample["filtered_resps"]] for sample in samples],
        }
    )
)
