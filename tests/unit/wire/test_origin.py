"""Addresses of origins: nothing secret leaves, and nothing that would run a program is taken."""

from __future__ import annotations

import pytest

from shunter.wire.errors import ShunterError
from shunter.wire.origin import capability, checked_url, public_url, sanitised


@pytest.mark.parametrize(
    ("given", "public", "tag"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b.git", "origin:github.com"),
        ("https://me:token@GitHub.com/a/b", "https://GitHub.com/a/b", "origin:github.com"),
        ("https://ghp_token@github.com/a/b", "https://github.com/a/b", "origin:github.com"),
        ("https://x-token:@github.com/a/b", "https://github.com/a/b", "origin:github.com"),
        ("http://h:8080/a?private_token=x#y", "http://h:8080/a", "origin:h:8080"),
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b", "origin:github.com"),
        ("ssh://git:secret@github.com:2222/a", "ssh://git@github.com:2222/a", "origin:github.com:2222"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git", "origin:github.com"),
        ("forge:b.git", "forge:b.git", "origin:forge"),
        ("https://[::1]:8080/a", "https://[::1]:8080/a", "origin:[::1]:8080"),
        ("/srv/git/b.git", "/srv/git/b.git", "origin:file"),
        ("file:///srv/git/b.git", "file:///srv/git/b.git", "origin:file"),
    ],
)
def test_what_is_recorded_of_an_address(given, public, tag):
    assert public_url(given) == public
    assert checked_url(public) == public
    assert capability(public) == tag


@pytest.mark.parametrize(
    "given",
    [
        *(
            "ext::sh -c id",
            "fd::17",
            "-oProxyCommand=id",
            "ssh://-oProxyCommand=id/x",
            "ssh://-l@h/x",
            "-x:y",
            "../b.git",
        ),
        *("https://h/a\nb", "h\0:x", "ftp://h/x", "https:///x", "", "C:\\x\0"),
    ],
)
def test_addresses_that_no_host_is_handed(given):
    assert public_url(given) is None
    with pytest.raises(ShunterError):
        checked_url(given)


def test_an_address_with_credentials_is_not_taken_from_a_message():
    with pytest.raises(ShunterError):
        checked_url("https://me:token@github.com/a")


def test_words_of_a_server_are_made_harmless():
    said = sanitised(
        "fatal: unable to access 'https://me:t0ken@h/a?private_token=t0ken': \x1b[31mno\nmore " + "x" * 900
    )
    assert "t0ken" not in said
    assert "https://h/a" in said
    assert said.isprintable()
    assert len(said) <= 600
