"""The sealing of `requestState`: what a server tells itself through its client's hands.

A state is encrypted and authenticated together with what it belongs to: the server, the caller,
the method and its params. Opened anywhere else it is not a state at all, so there is one way to
be refused, and it tells nothing.

Source: specification, basic/patterns/mrtr, "Server Requirements".
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_trio import codec, errors

__all__ = ["StateExpired", "StateRefused", "StateSeal", "binding"]

_MIN_KEY: Final = 32
_FORMAT: Final = b"\x01"
_SALT: Final = 16
_TAG: Final = 16
_NONCE: Final = bytes(12)
_NOT_BOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})


class StateRefused(errors.InvalidParams):
    """The `requestState` was not sealed by this server for this request and caller (-32602)."""

    def __init__(self) -> None:
        super().__init__("params.requestState: not valid for this request; start again without it")


class StateExpired(errors.InvalidParams):
    """The `requestState` belongs to this request, but is too old (-32602)."""

    def __init__(self) -> None:
        super().__init__("params.requestState: expired; start again without it")


def binding(server: str, principal: str | None, method: str, params: Mapping[str, Any]) -> bytes:
    """What a state belongs to: who asked whom for what.

    All params count but those that change from round to round. Absent arguments are none.
    """
    asked: dict[str, Any] = {"arguments": {}}
    asked.update((name, value) for name, value in params.items() if name not in _NOT_BOUND)
    text = json.dumps(
        [server, principal, method, asked],
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return hashlib.sha256(text.encode("ascii")).digest()


class StateSeal:
    """Seals states, and opens them again.

    Args:
        keys: each at least 32 secret random bytes. The first seals, all of them open, so a key is
            replaced by putting the new one in front and taking the old one out once its last
            states have expired. Processes that serve the same clients need the same keys. None
            makes a key for this process.
        ttl: for how many seconds a state is good.
        max_size: how many characters a sealed state may have.
        clock: the time in seconds since the epoch; other processes have to agree on it.

    Raises:
        ValueError: there is no key, or one is too short, or a number is not positive.
        TypeError: a key is not bytes.
    """

    def __init__(
        self,
        keys: Sequence[bytes] | None,
        *,
        ttl: float,
        max_size: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(keys, bytes | str):
            raise TypeError("state_keys is a sequence of keys, not one key")
        self._keys = (os.urandom(_MIN_KEY),) if keys is None else tuple(keys)
        if not self._keys:
            raise ValueError("state_keys needs a key")
        for key in self._keys:
            if not isinstance(key, bytes):
                raise TypeError(f"a state key is bytes, not {type(key).__name__}")
            if len(key) < _MIN_KEY:
                raise ValueError(f"a state key has at least {_MIN_KEY} bytes, got {len(key)}")
        if not ttl > 0:
            raise ValueError(f"state_ttl must be positive, got {ttl!r}")
        self._ttl = ttl
        self._max_size = max_size
        self._clock = clock

    def seal(self, state: dict[str, Any], bound: bytes) -> str:
        """Make the text of a state.

        Args:
            state: a JSON object.
            bound: from `binding`.

        Raises:
            codec.EncodeError: JSON cannot hold the state.
            ValueError: it is too large.
        """
        plain = codec.encode_json([self._clock() + self._ttl, state])
        salt = os.urandom(_SALT)
        box = _cipher(self._keys[0], salt).encrypt(_NONCE, plain, _FORMAT + bound)
        text = base64.urlsafe_b64encode(_FORMAT + salt + box).rstrip(b"=").decode("ascii")
        if len(text) > self._max_size:
            raise ValueError(f"the state has {len(text)} characters, and may have {self._max_size}")
        return text

    def open(self, text: str, bound: bytes) -> dict[str, Any]:
        """Return a state that was sealed for the same binding.

        Raises:
            StateRefused: there is none in the text.
            StateExpired: there is, and it is too old.
        """
        from cryptography.exceptions import InvalidTag

        data = self._decode(text)
        salt, box = data[1 : 1 + _SALT], data[1 + _SALT :]
        for key in self._keys:
            try:
                plain = _cipher(key, salt).decrypt(_NONCE, box, _FORMAT + bound)
            except InvalidTag:
                continue
            expires, state = codec.decode_json(plain)
            if self._clock() >= expires:
                raise StateExpired
            return dict(state)
        raise StateRefused

    def _decode(self, text: str) -> bytes:
        if len(text) <= self._max_size:
            try:
                data = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
            except (binascii.Error, ValueError):
                pass
            else:
                # The last character may hold bits that mean nothing; they have to be right too.
                again = base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
                whole = len(data) >= 1 + _SALT + _TAG and data[:1] == _FORMAT
                if whole and hmac.compare_digest(again, text):
                    return data
        raise StateRefused


def _cipher(key: bytes, salt: bytes) -> Any:
    """A cipher for one message: each has a key of its own, so the nonce can be constant.

    With random nonces under one key, 96 bits would be too few for a key that lives for years.
    """
    # 45 ms that most programs never need.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(key, b"mcp_trio requestState" + _FORMAT + salt, "sha256"))
