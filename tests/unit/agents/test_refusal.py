"""Families of refusals: sentences as they were seen, and variants of them."""

from __future__ import annotations

import pytest

from shunter.agents.refusal import judge_refusal

SEEN = {
    "limit": [
        "Claude AI usage limit reached|1751385600",
        "Claude Max usage limit reached. Your limit will reset at 12am.",
        "Session limit reached \u2219 resets 10am",
        "You've hit your limit \u00b7 resets Jan 15, 8am (Europe/Berlin)",
        "You\u2019ve hit your limit \u00b7 resets 11:30pm (Europe/Berlin)",
        "You've hit your session limit \u00b7 resets 2:30pm (Pacific/Auckland)\n/login to switch to an API account.",
        "This request would exceed your account's rate limit. Please try again later.",
        "You've hit your usage limit. Upgrade your plan to continue, or try again at Aug 20, 2026, 7:38 AM",
        "You\u2019ve hit your usage limit for gpt-x. Switch to another model now, or try again at 3:05 PM.",
        "You\u2019ve hit your usage limit \u2026 try again at 10 de jul. de 2026, 11:52.",
        "You exceeded your current quota, please check your plan and billing details.",
        "Quota exceeded. Check your plan and billing details.",
        "Usage Limit Reached, Please Upgrade to Pro",
        "[API Error: You have exhausted your daily quota on this model.]",
        "Your workspace is out of credits. Add credits to continue.",
        "Weekly limit reached \u00b7 resets Dec 2, 7pm (Europe/Moscow)",
        "Opus weekly limit reached",
        "5-hour limit reached \u2219 resets 3pm",
        "Free usage exceeded, subscribe to Go [retrying in 5s attempt #1]",
        "You're out of extra usage \u00b7 resets 3pm",
        "Error from provider (Console Go): Provider rate limit exceeded",
        "Insufficient balance",
        "Credit balance is too low",
        "exceeded retry limit, last status: 429 Too Many Requests",
        '{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":1777936568}',
        '"rate_limit_info":{"status":"rejected","resetsAt":1795996557,"rateLimitType":"five_hour"}',
        "Your quota will reset after 9h53m40s",
        "Reached the weekly limit of this plan",
        "Sonnet 4 limit reached",
        "You are being rate limited",
        "Rate limit reached for gpt-x in organization test-org on tokens per min (TPM): Limit 30000",
        "Rate limit exceeded for test (at /usr/lib/node_modules/x/cli.js:12, file:///opt/x/index.mjs)",
        "429 rate limit",
        '{"url":"https://api.example/v1","code":"insufficient_quota"}',
        "Usage limit",
        "exceeded retry limit, last status: 429",
        "I could not edit auth.py: You've hit your usage limit \u00b7 resets 3pm",
    ],
    "auth": [
        "Your access token could not be refreshed because your refresh token was already used. Please log out and in.",
        "Your refresh token has been invalidated. Please try signing in again.",
        "Missing API key \u00b7 Run /login",
        "Please run /login \u00b7 API Error: 401 Invalid authentication credentials",
        "Login expired \u00b7 Please run /login",
        "Invalid API key \u00b7 Fix external API key",
        "Not logged in \u00b7 Please run /login",
        "OAuth token has expired. Please obtain a new token.",
        "unexpected status 401 Unauthorized: you reached your usage limit, url: http://x",
        "account/read failed: workspace routing discovery unauthorized (401) (code -32603)",
        "API key not valid. Please pass a valid API key.",
        "Missing environment variable: `OPENAI_API_KEY`.",
        "Unauthorized",
        "Error: Unauthorized",
        "Invalid token",
        "Invalid token. Sign in first.",
        "tests did not run: Please run /login",
        '{"code": "refresh_token_reused", "message": "no"}',
    ],
    "overload": [
        "Selected model is at capacity. Please try a different model.",
        "stream disconnected before completion: stream closed before response.completed",
        "API Error: 529 Overloaded. This is a server-side issue, usually temporary \u2014 try again in a moment.",
        "API Error (Request timed out.) \u00b7 Retrying in 8 seconds\u2026 (attempt 5/10)",
        "Server is temporarily limiting requests (not your usage limit)",
        "We\u2019re currently experiencing high demand, which may cause temporary errors.",
        "API Error: Unable to connect to API (ConnectionRefused)",
        "Reconnecting... waiting for network (Connection failed: error sending request)",
        'API Error: 500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}',
        "unexpected status 503 Service Unavailable",
    ],
    "context_full": [
        "Codex ran out of room in the model's context window. Start a new thread or clear earlier history.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens",
        "context length limit exceeded",
    ],
    "failed": [
        "write error: Disk quota exceeded",
        "error: file usage_limit.py line 429 failed",
        "tests/rate_limit.rs: assertion failed",
        # An agent's own words about its work.
        "Could not edit auth.py: 401 Unauthorized expected in test but got 200",
        "assert 429 == 200",
        "AssertionError: assert 'rate limit exceeded' in body (429)",
        "expected status 401, got 200",
        "The route should return 401 Unauthorized for anonymous users",
        "Tool call limit reached; you may not edit more than 10 files",
        "You have reached your tool call limit",
        "ulimit: open files limit reached",
        "The file limits.py has a usage limit constant which I could not update",
        "There is a usage limit constant which I could not update",
        "The function rate_limit is not called",
        "I could not rename the quota column",
        "Memory limit exceeded",
        "maximum recursion limit exceeded",
        "POST /login returns a page without a form",
        "The endpoint answers Unauthorized to the client",
        "SyntaxError: Invalid token at line 3",
        "parse error: invalid token '}'",
        "fatal: Authentication failed for 'https://git.example/x.git'",
        "test_session.py: OAuth token has expired",
        "call of overloaded 'f(int)' is ambiguous",
        "could not create a temporary file",
        "The build timed out",
        "tests failed: connection refused",
        "There's an issue with the selected model (x). It may not exist or you may not have access to it.",
        "API Error: 400 reasoning `encrypted_content` was not issued to this caller",
        "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=tool_use",
        "something new",
        "",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SEEN.items() for text in texts])
def test_a_sentence_belongs_to_its_family(kind: str, text: str) -> None:
    assert judge_refusal(text) == kind
    assert judge_refusal(text.upper().replace("\u2019", "'")) == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "auth"),
        (402, "limit"),
        (403, "auth"),
        (429, "limit"),
        (408, "overload"),
        (500, "overload"),
        (400, "failed"),
    ],
)
def test_a_status_speaks_where_the_text_does_not(status: int, kind: str) -> None:
    assert judge_refusal("no", status) == kind


def test_a_huge_text_is_judged_by_its_beginning() -> None:
    assert judge_refusal("hit your " * 2_000_000) == "failed"
    assert judge_refusal("Session limit reached" + " " * 20_000_000) == "limit"
