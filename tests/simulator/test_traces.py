"""Each public format gives the same requests; a damaged line is named with the fix."""

import gzip
import json
from pathlib import Path

import pytest

from paceline_core.errors import InvalidInput
from paceline_simulator.traces import BLOCK, UNIQUE, TraceRequest, read_trace, spread

PLAIN = [TraceRequest(0.0, 374, 44), TraceRequest(1.5, 396, 109)]
TEXTS = {
    "reduced.csv": "t_s,prompt_tokens,output_tokens\n0.0,374,44\n1.5,396,109\n",
    "azure2023.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.0000000,374,44\n2023-11-16 18:15:47.5000000,396,109\n",
    "azure2024.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.250000+00:00,374,44\n2024-05-10 00:00:01.750000+00:00,396,109\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,374,44,418,Conversation log\n6,ChatGPT,9,0,9,API log\n6.5,GPT-4,396,109,505,API log\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": []}\n'
    '{"timestamp": 1500, "input_length": 396, "output_length": 109}\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_format_is_recognised_by_its_columns_and_time_begins_at_the_first_request(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    assert read_trace(path) == PLAIN
    assert read_trace(path, 1) == PLAIN[:1]
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(TEXTS[name].encode()))
    assert read_trace(packed) == PLAIN


def test_equal_blocks_are_equal_tokens_and_a_prompt_without_blocks_is_unique() -> None:
    request = TraceRequest(0.0, 600, 3, (7, 9))
    assert request.tokens(1) == request.tokens(2) == [7] * BLOCK + [9] * 88
    assert TraceRequest(0.0, 3, 1).tokens(5) == [UNIQUE + 5] * 3


HEAD = "t_s,prompt_tokens,output_tokens\n"
DAMAGED = {
    f"{HEAD}0,374,44\n1,many,3\n": r"trace\.csv:3: prompt_tokens is 'many', not a whole number.* mend or remove",
    f"{HEAD}0,12.5,44\n": r"trace\.csv:2: prompt_tokens is '12.5', not a whole number of tokens",
    f"{HEAD}0,0,44\n": r"trace\.csv:2: prompt_tokens is 0",
    f"{HEAD}0,5\n": r"trace\.csv:2: output_tokens is missing",
    f"{HEAD}inf,5,3\n": r"trace\.csv:2: t_s is 'inf', not a number of seconds",
    f"{HEAD}nan,5,3\n": r"trace\.csv:2: t_s is 'nan', not a number of seconds",
    "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,3\n": r"trace\.csv:2: TIMESTAMP is 'noon', not a date and time",
    "when,what\n0,5\n": r"trace\.csv: has the columns when, what; name them in the first line.* t_s, prompt_tokens and",
    HEAD: r"trace\.csv: holds no requests; a CSV file has a header and a line",
}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_trace_is_named_by_its_line_or_column(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=DAMAGED[text]):
        read_trace(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "trace.jsonl:2: is not JSON"),
        ("[1]", "trace.jsonl:2: is not a JSON object"),
        (
            '{"t_s": 1, "prompt_tokens": 600, "output_tokens": 3, "hash_ids": [1]}',
            "hash_ids are 1, but 600 prompt tokens are 2",
        ),
        (
            '{"t_s": 1, "prompt_tokens": 6, "output_tokens": 3, "hash_ids": [1, 2]}',
            "hash_ids are 2, but 6 prompt tokens",
        ),
        ('{"t_s": 1, "prompt_tokens": 6, "output_tokens": 3, "hash_ids": ["x"]}', "hash_ids is ['x'], not a list"),
        ('{"t_s": 1, "output_tokens": 3}', "prompt_tokens is missing"),
        ('{"t_s": 1, "prompt_tokens": 6, "output_tokens": 3, "hash_ids": [-1]}', "hash_ids are from -1"),
    ],
)
def test_a_damaged_json_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    good = {"t_s": 0, "prompt_tokens": 6, "output_tokens": 3, "hash_ids": [1]}
    path.write_text(json.dumps(good) + "\n" + line + "\n")
    with pytest.raises(InvalidInput) as caught:
        read_trace(path)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(b"\x1f\x8b, but no gzip")
    for path in (packed, tmp_path / "absent.csv"):
        with pytest.raises(InvalidInput, match=f"{path}: cannot be read as a trace"):
            read_trace(path)


def test_a_file_that_was_cut_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TEXTS["reduced.csv"].encode())[:-10])
    with pytest.raises(InvalidInput, match="ends in the middle of its packed data; copy the whole file"):
        read_trace(path)


def test_a_spreadsheets_mark_a_blank_line_and_a_missing_suffix_do_no_harm(tmp_path: Path) -> None:
    marked = tmp_path / "marked.csv"
    marked.write_text("\ufeff" + TEXTS["reduced.csv"])
    blank = tmp_path / "blank.jsonl"
    blank.write_text(TEXTS["mooncake.jsonl"].replace("\n", "\n\n"))
    packed = tmp_path / "packed.csv"
    packed.write_bytes(gzip.compress(TEXTS["reduced.csv"].encode()))
    assert read_trace(marked) == read_trace(blank) == read_trace(packed) == PLAIN


def test_requests_of_one_instant_are_spread_over_the_time_to_the_next() -> None:
    rows = [TraceRequest(at, 1, 1) for at in (0.0, 0.0, 4.0, 6.0, 6.0)]
    assert [request.at for request in spread(rows)] == [0.0, 2.0, 4.0, 6.0, 6.0]
    assert spread([]) == []
