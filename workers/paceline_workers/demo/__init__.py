"""The demo model that `builtin://demo` names: a tiny Llama trained on paceline's glossary, in Hugging Face layout.

It ships in the wheel, so the same manifest works on a laptop and on a cluster without any download.
`python -m tools.demo_model` makes it; `model/DIGEST` holds the SHA-256 of its weights and its tokenizer.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
"""Holds config.json, model.safetensors (float32), tokenizer.json and tokenizer_config.json with the chat template."""
