"""Re-created services keep the published rates, laws and lengths; damaged statistics are named."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from paceline_core.errors import InvalidInput
from paceline_simulator.servegen import SHARES, ClientLengths, ClientWindow, read_windows, recreate

HEAD = "workload,client,t_s,rate_rps,iat_cv,dist,p_shape,p_scale\n"
LENGTHS = "workload,client,t_s,field,mean," + ",".join(f"p{share * 100:g}" for share in SHARES) + "\n"
PROMPTS, OUTPUTS = "10,20,30,40,50,60,70,80,90,100", "1,2,3,4,5,6,7,8,9,10"


def folder(tmp_path: Path, windows: Sequence[str], lengths: Sequence[str]) -> Path:
    for name, head, lines in (("windows", HEAD, windows), ("lengths", LENGTHS, lengths)):
        text = head + "".join(f"{line}\n" for line in lines)
        (tmp_path / f"servegen_client_{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_a_service_is_recreated_by_client_within_its_span(tmp_path: Path) -> None:
    windows = [
        "chat,0,0,2.0,1,G,1.0,0.5",
        "chat,0,600,4.0,1,W,0.8,0.2",
        "chat,7,600,1.0,1,G,0.5,2",
        "code,0,0,9,1,G,1,1",
    ]
    lengths = [f"chat,0,0,input_tokens,50,{PROMPTS}", f"chat,0,0,output_tokens,5,{OUTPUTS}"]
    path = folder(tmp_path, [*windows, "code,0,0,9,1,G,1,1"], lengths)
    found = recreate(path, "chat", Random(1), start_s=300.0, span_s=900.0)
    assert found == recreate(path, "chat", Random(1), start_s=300.0, span_s=900.0)
    assert [request.at for request in found] == sorted(request.at for request in found)
    assert all(0.0 <= request.at < 900.0 for request in found)
    counts = [sum(r.tenant == t and low <= r.at < high for r in found) for t, low, high in
              (("0", 0, 300), ("0", 300, 900), ("7", 300, 900))]  # fmt: skip
    assert counts == [pytest.approx(600, rel=0.15), pytest.approx(2400, rel=0.15), pytest.approx(600, rel=0.25)]
    assert {request.prompt_tokens for request in found} <= set(range(10, 101))
    assert sum(request.output_tokens for request in found) / len(found) == pytest.approx(5.0, rel=0.1)
    thinned = recreate(path, "chat", Random(2), start_s=300.0, span_s=900.0, share=0.1)
    assert len(thinned) == pytest.approx(len(found) / 10, rel=0.2)


def test_both_laws_keep_the_rate_whatever_their_shape() -> None:
    for law in "GW":
        for shape in (0.4, 1.0, 3.0):
            counts = [len(list(ClientWindow("a", 0.0, 5.0, law, shape).arrivals(Random(seed)))) for seed in range(20)]
            assert sum(counts) / 20 == pytest.approx(3000, rel=0.05)


def test_lengths_follow_their_quantiles() -> None:
    lengths = ClientLengths(0.0, [float(share * 100) for share in SHARES], [7.0] * len(SHARES))
    drawn = [lengths.draw(Random(seed)) for seed in range(400)]
    assert sorted(prompt for prompt, _ in drawn)[200] == pytest.approx(50, abs=8)
    assert {output for _, output in drawn} == {7}


def test_damaged_statistics_and_an_unknown_service_are_named(tmp_path: Path) -> None:
    good = [f"chat,0,0,input_tokens,50,{PROMPTS}", f"chat,0,0,output_tokens,5,{OUTPUTS}"]
    path = folder(tmp_path, ["chat,0,0,2.0,1,G,1.0,0.5", "chat,0,600,2.0,1,X,1.0,0.5"], good)
    with pytest.raises(InvalidInput, match=r"windows\.csv\.gz:3: is damaged .*law 'X'.* mend or remove"):
        recreate(path, "chat", Random(1), start_s=0.0, span_s=1.0)
    with pytest.raises(InvalidInput, match=r"^service: 'none' is not in .*; it has chat"):
        read_windows(path / "servegen_client_windows.csv.gz", "none")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_windows(path / "absent.csv.gz", "chat")
    path = folder(tmp_path, ["chat,0,0,2.0,1,G,1.0,0.5"], good[:1])
    with pytest.raises(InvalidInput, match="lacks prompt or output lengths of client 0 at 0 s"):
        recreate(path, "chat", Random(1), start_s=0.0, span_s=1.0)
