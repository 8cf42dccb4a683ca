"""A signing key is rotated while streams run, as the operator does it: no worker ever refuses the gateway."""

import asyncio
import base64
import json
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import STREAM, Stand, until
from tests.gateway.worker_double import Script, WorkerDouble

from paceline_core.auth import TokenSigner, TrustBundle, jwk_set, new_signing_key, public_half, public_jwk
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock

pytestmark = pytest.mark.real


def replace(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new."""
    scratch = path.with_suffix(".new")
    scratch.write_bytes(content)
    scratch.rename(path)


def publish(path: Path, *keys: bytes, signer: str = "gateway") -> None:
    """Write a JWK set with the public halves of one signer's keys."""
    replace(path, json.dumps(jwk_set(public_jwk(key, signer) for key in keys)).encode())


def key_ids(worker: WorkerDouble) -> list[str]:
    """Which keys signed the requests that it saw."""
    protected = [seen.headers[HEADER].split(".")[0] for seen in worker.seen]
    return [json.loads(base64.urlsafe_b64decode(p + "=" * (-len(p) % 4)))["kid"] for p in protected]


def signed(worker: WorkerDouble, key: bytes) -> bool:
    """Whether this key signed the last request that it saw."""
    return key_ids(worker)[-1] == public_half(key)[0]


async def test_streams_go_on_and_no_token_is_refused_while_the_key_is_rotated(
    stand: Stand, tmp_path: Path, make_worker: MakeWorker
) -> None:
    worker, trust, old = await make_worker(), tmp_path / "worker-jwks.json", stand.signing_key
    worker.script = lambda _: Script(delay_s=0.02)
    publish(trust, old)
    worker.trust = TrustBundle(trust, "default/chat", SystemClock())
    stand.work(worker)
    await stand.ready()
    stop, answers = asyncio.Event(), list[httpx.Response]()

    async def client() -> None:
        while not stop.is_set():
            answers.append(await stand.client.post("/v1/chat/completions", json=STREAM))

    async def some_more() -> None:
        enough = len(answers) + 12
        await until(lambda: len(answers) >= enough)

    clients = [asyncio.create_task(client()) for _ in range(6)]
    await some_more()
    for new in (new_signing_key(), new_signing_key()):
        publish(trust, old, new)
        await some_more()
        replace(tmp_path / "signing.key", new)
        await until(partial(signed, worker, new))
        await some_more()
        publish(trust, new)
        await some_more()
        assert set(key_ids(worker)[-6:]) == {public_half(new)[0]}
        old = new
    stop.set()
    await asyncio.gather(*clients)
    assert worker.refused == []
    assert {response.status_code for response in answers} == {200}
    assert all(response.text.endswith("data: [DONE]\n\n") for response in answers)


async def test_the_autoscaler_is_heard_with_its_new_key_and_while_the_trust_file_is_gone(
    stand: Stand, tmp_path: Path
) -> None:
    trust, new = tmp_path / "jwks.json", TokenSigner(key := new_signing_key(), "autoscaler")
    assert await _asks(stand, new) == 401
    publish(trust, key, signer="autoscaler")
    assert await _asks(stand, new) == 200
    trust.unlink()
    assert await _asks(stand, new) == 200
    assert await _asks(stand, TokenSigner(key, "gateway")) == 401


async def _asks(stand: Stand, signer: TokenSigner) -> int:
    headers = {HEADER: signer.token(GATEWAY_AUDIENCE, SystemClock().utc())}
    async with stand.admin.stream("GET", "/internal/demand", headers=headers) as response:
        return response.status_code
