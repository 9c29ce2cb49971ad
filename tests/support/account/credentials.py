"""Keys that sign JWTs as `nsc` does, and credentials files of users made with them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping

import nkeys  # type: ignore[import-untyped]

_UNLIMITED = -1
_LIMITS = ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage", "streams", "consumer")


class Identity:
    """An nkey that can sign JWTs."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public: str = self._pair.public_key.decode()

    def sign(self, subject: Identity, kind: str, body: Mapping[str, object]) -> str:
        """A JWT about `subject`, issued by this identity."""
        claims: dict[str, object] = {"iat": int(time.time()), "iss": self.public, "sub": subject.public, "name": kind}
        claims["nats"] = {**body, "type": kind, "version": 2}
        claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        parts = [_encoded({"typ": "JWT", "alg": "ed25519-nkey"}), _encoded(claims)]
        signature: bytes = self._pair.sign(".".join(parts).encode())
        return ".".join([*parts, base64.urlsafe_b64encode(signature).decode().rstrip("=")])


class User:
    """A user of an account: its JWT, its seed, and both as a credentials file."""

    def __init__(self, account: Identity, permissions: Mapping[str, object]) -> None:
        self._identity = Identity(nkeys.PREFIX_BYTE_USER)
        limits = dict.fromkeys(("subs", "data", "payload"), _UNLIMITED)
        self.jwt = account.sign(self._identity, "user", {**limits, **permissions})
        self.seed = self._identity.seed
        self.credentials = (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.seed}\n------END USER NKEY SEED------\n"
        )


class Operator:
    """An operator with one account that has JetStream, and the server configuration that knows them."""

    def __init__(self) -> None:
        self._operator = Identity(nkeys.PREFIX_BYTE_OPERATOR)
        self._system, self._account = Identity(nkeys.PREFIX_BYTE_ACCOUNT), Identity(nkeys.PREFIX_BYTE_ACCOUNT)

    @property
    def config(self) -> str:
        """For a server."""
        limits = {"limits": dict.fromkeys(_LIMITS, _UNLIMITED)}
        system = {"limits": dict.fromkeys(_LIMITS[:7], _UNLIMITED)}
        sign = self._operator.sign
        accounts = {
            self._system.public: sign(self._system, "account", system),
            self._account.public: sign(self._account, "account", limits),
        }
        return (
            f"operator: {sign(self._operator, 'operator', {})}\nsystem_account: {self._system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {json.dumps(accounts)}"
        )

    def user(self, **permissions: object) -> User:
        """A new user of the account, who may do everything, or what `pub` and `sub` say."""
        return User(self._account, permissions)


def _encoded(document: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
