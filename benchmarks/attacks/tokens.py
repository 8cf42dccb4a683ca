"""Tokens of gateways that are signed as they should be and say what none should, and one that nobody signed."""

import base64
import json
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paceline_core.auth.hop import public_half


def odd_tokens(hop_key: bytes, service: str, now: datetime) -> dict[str, str]:
    """By the names that cases call them by."""
    soon = int(now.timestamp()) + 60
    claims = {"iss": "gateway", "aud": service, "kid": public_half(hop_key)[0]}
    plain = json.dumps(claims | {"exp": soon})
    return {
        "UNSIGNED": f"{_encoded(plain.encode())}.{_encoded(bytes(64))}",
        "FOREVER": _signed(hop_key, json.dumps(claims | {"exp": float("inf")})),
        "HUGE": _signed(hop_key, plain.replace(str(soon), "1" + "0" * 400)),
        "NAN": _signed(hop_key, json.dumps(claims | {"exp": float("nan")})),
        "ELSEWHERE": _signed(hop_key, json.dumps(claims | {"exp": soon, "aud": "default/elsewhere"})),
    }


def _signed(key: bytes, text: str) -> str:
    payload = _encoded(text.encode())
    return f"{payload}.{_encoded(Ed25519PrivateKey.from_private_bytes(key).sign(payload.encode()))}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
