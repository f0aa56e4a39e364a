"""Entries of hosts in the user's file: everything else stays, byte for byte, or nothing is written."""

from __future__ import annotations

import tomllib

import pytest

from shunter.fleet import inventory
from shunter.fleet.config import load_config
from shunter.fleet.inventory import add_host_entry, remove_host_entry, update_host_entry
from shunter.fleet.places import find_places
from shunter.wire.errors import ShunterError

MINI = {"name": "mini", "ssh": "me@mini", "slots": 2}
FILES = {
    "empty": "",
    "comment": "# mine",
    "limits": "[limits] # how long\ntimeout = '1h'\n# the end\n",
    "hosts": (
        '# pool\n[[hosts]]\nname = "local" # here\n\n'
        '[[hosts]]   # second\nname = "b"\nssh = "b"\n\n[defaults]\npriority = 1\n'
    ),
    "inline": 'hosts = [\n  { name = "local" }, # here\n]\n[defaults]\npriority = 1 # one\n',
    "apart": '[[hosts]]\nname = "local"\n[agents.x]\nadapter = "exec"\ncommand = ["a"] # b\n',
    "windows": '# mine\r\n[[hosts]]\r\nname = "local"\r\n',
    "mark": '\ufeff# mine\n[[hosts]]\nname = "local"\n',
    "no end of line": '[[hosts]]\nname = "local"',
}


@pytest.fixture
def places(tmp_path):
    found = find_places({"HOME": str(tmp_path)})
    found.config_file.parent.mkdir(parents=True)
    return found


@pytest.mark.parametrize("name", FILES)
def test_an_entry_comes_and_goes_and_the_rest_stays(places, name):
    before = FILES[name].encode()
    places.config_file.write_bytes(before)
    had_hosts = b"hosts" in before
    assert add_host_entry(places, MINI) is not had_hosts
    after = places.config_file.read_bytes()
    names = [host.name for host in load_config(places).hosts]
    assert names[0] == "local" and names[-1] == "mini"
    if name != "inline":
        assert after.startswith(before)
    comments = [line.partition("#")[2] for line in FILES[name].splitlines() if "#" in line]
    assert all(comment in after.decode() for comment in comments)
    assert (b"\r\n" in after) == (b"\r\n" in before)
    assert b"\r\n" not in before or after.count(b"\n") == after.count(b"\r\n")
    assert remove_host_entry(places, "mini")
    assert "mini" not in places.config_file.read_text("utf-8-sig")
    if had_hosts and name not in ("inline", "no end of line"):
        assert places.config_file.read_bytes() == before
    assert all(comment in places.config_file.read_text() for comment in comments)
    assert not remove_host_entry(places, "mini")


def test_without_a_file_one_is_made_for_its_owner_alone(places):
    assert add_host_entry(places, MINI)
    assert [host.name for host in load_config(places).hosts] == ["local", "mini"]
    assert places.config_file.stat().st_mode & 0o777 == 0o600


def test_keys_of_an_entry_change(places):
    places.config_file.write_text(FILES["hosts"])
    update_host_entry(places, "b", {"slots": 4, "tags": ["gpu"]})
    host = load_config(places).hosts[1]
    assert (host.slots, host.tags) == (4, ("gpu",))
    assert "# second" in places.config_file.read_text()


SCATTERED = """# top
[[hosts]]
name = "local"  # me

# ---- defaults of mine ----
[defaults]  # at the end
priority = 1

# ---- hosts I added ----
[[hosts]]
name = "mini"
ssh = "mini"
slots = 3 # three
tags = [
  "gpu",  # one
]

# ---- the last ----
[[hosts]]
name = "vps"
ssh = "vps"
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_changed_value_changes_nothing_else(places, newline):
    text = SCATTERED.replace("\n", newline)
    places.config_file.write_bytes(text.encode())
    update_host_entry(places, "mini", {"slots": 2})
    assert places.config_file.read_bytes().decode() == text.replace("slots = 3 #", "slots = 2 #")
    update_host_entry(places, "vps", {"python": "/opt/python"})
    assert (
        places.config_file.read_bytes().decode().endswith(newline.join(['ssh = "vps"', 'python = "/opt/python"', ""]))
    )
    assert remove_host_entry(places, "mini")
    left = places.config_file.read_text().replace(newline, "\n")
    assert all(
        line in left for line in ("# ---- hosts I added ----", "# ---- the last ----", "# ---- defaults of mine")
    )
    assert left.index("# ---- defaults") < left.index("[defaults]") < left.index("# ---- the last ----")


def test_removing_the_last_entry_leaves_a_file_that_is_valid(places):
    places.config_file.write_text("# mine\n[[hosts]]\nname = 'a'\nssh = 'a'\n\n[limits]\nterm_grace_s = 1\n")
    assert remove_host_entry(places, "a")
    assert tomllib.loads(places.config_file.read_text()) == {"limits": {"term_grace_s": 1}}


def test_a_link_stays_one(places, tmp_path):
    real = tmp_path / "dotfiles.toml"
    real.write_text("# mine\n")
    places.config_file.symlink_to(real)
    add_host_entry(places, MINI)
    assert places.config_file.is_symlink() and "mini" in real.read_text()


def test_what_an_editor_saved_meanwhile_is_not_overwritten(places, monkeypatch):
    places.config_file.write_text("# first\n")
    proved = inventory._proved

    def slow(*words):
        places.config_file.write_text("# saved by an editor\n")
        return proved(*words)

    monkeypatch.setattr(inventory, "_proved", slow)
    with pytest.raises(ShunterError) as told:
        add_host_entry(places, MINI)
    assert "changed meanwhile" in told.value.text
    assert places.config_file.read_text() == "# saved by an editor\n"
    assert [path.name for path in places.config_file.parent.iterdir()] == ["config.toml"]
