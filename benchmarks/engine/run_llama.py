"""llama.cpp as a peer, through the batch interface of llama-cpp-python: its own environment runs this.

The folder's weights are written as a float32 GGUF beside it first. Its rotation takes neighbouring elements of a head
where Hugging Face's takes the two halves, so the rows of query and key projections are interleaved. Keys and values
are float32 as well. Its fused attention is off: it rounds to half precision inside (logits are off by 9e-4 instead of
3e-6), and is no faster here. Everything else is as llama.cpp has it by default.
"""

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from benchmarks.engine.lines import Generate, Run, Stamp, run, serve
from numpy.typing import NDArray

SEQUENCES = 8
CONTEXT = 1024
BATCH = 2048
TYPES = {"F32": np.float32}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
Array = NDArray[np.float32]


def load(folder: str, threads: int) -> Generate:
    """The model and a context for SEQUENCES sequences, kept between jobs."""
    file = Path(folder) / "model.gguf"
    if not file.exists():
        write(Path(folder), file)
    llama_cpp.llama_backend_init()
    silence = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
    llama_cpp.llama_log_set(silence, ctypes.c_void_p(0))
    model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
    context = llama_cpp.llama_init_from_model(model, _settings(threads))
    engine = Engine(
        context, llama_cpp.llama_batch_init(BATCH, 0, 1), json.loads(Path(folder, "config.json").read_text())
    )
    engine.keep = (silence, model)
    return engine.generate


def _settings(threads: int) -> Any:
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max = SEQUENCES * CONTEXT, SEQUENCES
    settings.n_batch, settings.n_ubatch = BATCH, 512
    settings.n_threads = settings.n_threads_batch = threads
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
    settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return settings


class Engine:
    """One context and one batch, filled anew for each step."""

    keep: object

    def __init__(self, context: Any, batch: Any, config: dict[str, Any]) -> None:
        self._context, self._batch, self._vocab = context, batch, config["vocab_size"]

    def generate(self, prompts: Sequence[Sequence[int]], new: int) -> Run:
        """All prompts in one batch, then all sequences by one token a step."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        begin = Stamp.now()
        best = self._step([(prompt, 0) for prompt in prompts])
        first = Stamp.now()
        texts = [[token] for token in best]
        for place in range(new - 1):
            best = self._step([([text[-1]], len(prompt) + place) for text, prompt in zip(texts, prompts, strict=True)])
            for text, token in zip(texts, best, strict=True):
                text.append(token)
        return run(begin, first, Stamp.now(), texts)

    def _step(self, parts: Sequence[tuple[Sequence[int], int]]) -> list[int]:
        """The best next token of each sequence after these tokens, which begin at that position."""
        batch, rows, row = self._batch, [], 0
        for sequence, (tokens, start) in enumerate(parts):
            for offset, token in enumerate(tokens):
                batch.token[row], batch.pos[row] = token, start + offset
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
                batch.logits[row] = offset == len(tokens) - 1
                row += 1
            rows.append(row - 1)
        batch.n_tokens = row
        if code := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode says {code}")
        return [int(self._logits(place).argmax()) for place in rows]

    def _logits(self, row: int) -> Array:
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, row), (self._vocab,))


def write(folder: Path, file: Path) -> None:
    """The folder's weights as GGUF, without a tokenizer: prompts are token ids."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("none")
    for name, tensor in _tensors(folder / "model.safetensors"):
        writer.add_tensor(_name(name), _interleaved(name, tensor, config["head_dim"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(path: Path) -> list[tuple[str, Array]]:
    """A safetensors file: the length of its header, the header, the bytes."""
    data = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    found = []
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + place for place in entry["data_offsets"])
            found.append((name, data[begin:end].view(TYPES[entry["dtype"]]).reshape(entry["shape"])))
    return found


def _name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def _interleaved(name: str, tensor: Array, head_dim: int) -> Array:
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return np.ascontiguousarray(tensor)
    heads = tensor.reshape(-1, 2, head_dim // 2, tensor.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(tensor.shape)


if __name__ == "__main__":
    serve(load)
