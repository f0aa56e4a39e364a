"""Places follow the XDG rules and create nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.fleet.places import find_places


def test_without_variables_everything_is_below_home(tmp_path):
    places = find_places({"HOME": str(tmp_path)})
    assert places.config_file == tmp_path / ".config/shunter/config.toml"
    assert places.store_file == tmp_path / ".local/state/shunter/store.db"
    assert places.host_data_root == tmp_path / ".local/share/shunter"
    assert not places.config_given
    assert list(tmp_path.iterdir()) == []


def test_each_variable_moves_its_own(tmp_path):
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
    places = find_places({"HOME": "/nowhere", **{name: str(tmp_path / name) for name in names}})
    assert places.config_file == tmp_path / "XDG_CONFIG_HOME/shunter/config.toml"
    state = tmp_path / "XDG_STATE_HOME/shunter"
    assert {places.store_file.parent, places.prompts_dir.parent, places.wake_fifo.parent} == {state}
    assert places.host_data_root == tmp_path / "XDG_DATA_HOME/shunter"


@pytest.mark.parametrize("value", ["", "relative/path", "~/state"])
def test_a_relative_base_is_ignored(tmp_path, value):
    assert find_places({"HOME": str(tmp_path), "XDG_STATE_HOME": value}) == find_places({"HOME": str(tmp_path)})


def test_the_configuration_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = find_places({"HOME": "/h", "SHUNTER_CONFIG": "my.toml"})
    assert (places.config_file, places.config_given) == (tmp_path / "my.toml", True)


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_home_the_password_database_is_asked(home, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    assert find_places(home).state_dir == Path("~").expanduser() / ".local/state/shunter"
