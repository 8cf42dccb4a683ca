"""Tokens of gateways that are signed as they should be and say what none should, and one that nobody signed."""

import base64
import json
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paceline_core.auth import public_half


def odd_tokens(signing_key: bytes, service: str, now: datetime) -> dict[str, str]:
    """By the names that cases call them by."""
    soon = int(now.timestamp()) + 60
    claims = {"iss": "gateway", "aud": service}
    plain = json.dumps(claims | {"exp": soon})
    return {
        "UNSIGNED": f"{_signing_input(signing_key, plain)}.{_encoded(bytes(64))}",
        "FOREVER": _signed(signing_key, json.dumps(claims | {"exp": float("inf")})),
        "HUGE": _signed(signing_key, plain.replace(str(soon), "1" + "0" * 400)),
        "NAN": _signed(signing_key, json.dumps(claims | {"exp": float("nan")})),
        "ELSEWHERE": _signed(signing_key, json.dumps(claims | {"exp": soon, "aud": "default/elsewhere"})),
    }


def _signed(key: bytes, payload: str) -> str:
    text = _signing_input(key, payload)
    return f"{text}.{_encoded(Ed25519PrivateKey.from_private_bytes(key).sign(text.encode()))}"


def _signing_input(key: bytes, payload: str) -> str:
    header = json.dumps({"alg": "EdDSA", "kid": public_half(key)[0], "typ": "JWT"})
    return f"{_encoded(header.encode())}.{_encoded(payload.encode())}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
