"""From what a provider answered to a `BackendFault` that says whose fault it is and whether to ask again.

| kind | party | again? | for example |
|---|---|---|---|
| auth | kamebench (this side) | no | 401, 403: the key |
| not_found | kamebench (this side) | no | 404: the model's name or the address |
| bad_request | kamebench (this side) | no | 400, 413, 422 |
| quota | kamebench (this side) | no | the account has no credit left |
| rate_limit | backend | yes | 429 |
| overloaded | backend | yes | 503, 529 |
| server | backend | yes | 500 |
| timeout | backend | yes | no first token, or nothing more, in time |
| protocol | backend | yes | garbage, or a stream that ends without its last event |
| connection | network | yes | refused, reset |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from pydantic import SecretStr

from kamebench.errors import BackendFault, Party

Kind = Literal[
    "auth",
    "not_found",
    "bad_request",
    "quota",
    "rate_limit",
    "overloaded",
    "server",
    "timeout",
    "protocol",
    "connection",
]

_THIS_SIDE: tuple[Kind, ...] = ("auth", "not_found", "bad_request", "quota")

_MENDS: dict[Kind, str] = {
    "auth": "Check the key and what it may be used for.",
    "not_found": "Check the model's name and the address.",
    "quota": "The account has no credit left.",
    "bad_request": "The request itself was refused: asking again unchanged cannot help.",
}

# Words that providers use in error bodies: OpenAI's `code` and `type`, Anthropic's `type`, Google's `status`
# and `reason`. They are more exact than the HTTP status.
_WORDS: dict[str, Kind] = {
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "auth",
    "API_KEY_INVALID": "auth",
    "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "NOT_FOUND": "not_found",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "overloaded_error": "overloaded",
    "UNAVAILABLE": "overloaded",
    "server_error": "server",
    "api_error": "server",
    "INTERNAL": "server",
    "timeout_error": "timeout",
    "DEADLINE_EXCEEDED": "timeout",
}

_STATUSES: dict[int, Kind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


def fault_of_kind(kind: Kind, message: str, retry_after_s: float | None = None) -> BackendFault:
    """The fault of a kind, with the mend where there is one."""
    party: Party = "backend"
    if kind in _THIS_SIDE:
        party = "kamebench"
    elif kind == "connection":
        party = "network"
    mend = _MENDS.get(kind)
    text = f"{message} {mend}" if mend else message
    fault = BackendFault(text, kind=kind, retryable=kind not in _THIS_SIDE, party=party)
    fault.retry_after_s = retry_after_s
    return fault


def kind_of(status: int | None, words: Iterable[object]) -> Kind:
    """The kind of an error answer: by its words, else by its HTTP status, else the server's fault."""
    for word in words:
        if isinstance(word, str) and word in _WORDS:
            return _WORDS[word]
    if status is None or status < 400 or status >= 600:
        return "server"
    return _STATUSES.get(status, "server" if status >= 500 else "bad_request")


def retry_after_s(headers: Mapping[str, str] | None) -> float | None:
    """Seconds to wait from `retry-after-ms` or `Retry-After` (seconds or an HTTP date, RFC 9110 10.2.3)."""
    if not headers:
        return None
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def redacted(text: str, key: SecretStr | None) -> str:
    """`text` without the key: some servers repeat it in their error messages."""
    secret = key.get_secret_value() if key is not None else ""
    return text.replace(secret, "[key]") if secret else text


def shortened(text: Any, limit: int = 300) -> str:
    """A provider's words on one line, cut to `limit` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
