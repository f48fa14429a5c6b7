"""Removal of secrets from error texts of servers, before the model and the logs see them. Pure."""

from __future__ import annotations

import re

MAX_TEXT = 1000
"""Most characters of an error text."""

CUT = "[cut]"

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):.*", re.DOTALL)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
# Repetitions are bounded or possessive, so that matching takes linear time: "[\w-]*secret" would scan a long run once
# per letter.
_RULES = (
    # user:password@ of a URL
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s]*@"), f"{CUT}@"),
    (re.compile(r"\b(bearer|basic|token)\s{1,20}[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {CUT}"),
    (re.compile(r"\b(pass(?:word|wd|phrase))(\s{1,20}(?:is\s{1,20})?)[^\s,;]+", re.IGNORECASE), rf"\1\2{CUT}"),
    # name = value, name: value, "name": "value"
    (
        re.compile(
            r"""((?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|cookie|"""
            r"""authorization|session[_-]?id|signature)[\w-]{0,64}["']?)(\s{0,20}[=:]\s{0,20})("[^"]*"|'[^']*'|(?:bearer\s{1,20}|basic\s{1,20})?[^\s,;&"'}]+)""",
            re.IGNORECASE,
        ),
        rf"\1\2{CUT}",
    ),
    # keys of known forms: AWS, GitHub, Slack, OpenAI and Stripe, Google, JSON web tokens
    (
        re.compile(
            r"\b((AKIA|ASIA)[A-Z0-9]{12,}|gh[opsur]_\w{20,}|github_pat_\w{20,}|xox[a-z]-[\w-]{10,}|[sr]k[-_][\w-]{16,}"
            r"|AIza[\w-]{30,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*)"
        ),
        CUT,
    ),
    # hexadecimal or base64 of 32 characters or more
    (re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z+/_=-]*+\d)[A-Za-z0-9+/_=-]{32,}+"), CUT),
)


def redact_secrets(text: str) -> str:
    """Return ``text`` without passwords, keys, tokens and tracebacks, truncated to 1,000 characters.

    The rules recognize names such as ``password=``, credentials in URLs, keys of known forms, and long runs of
    hexadecimal or base64. A secret that looks like a word is not found.
    """
    text = _PRIVATE_KEY.sub(CUT, _TRACEBACK.sub(CUT, text[: 10 * MAX_TEXT]))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} {CUT}"
