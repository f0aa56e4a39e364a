"""Configuration: what is read, who wins, and that a fault names file, key, value and the allowed form."""

from __future__ import annotations

import os

import pytest

from shunter.agents.table import MODULES
from shunter.fleet.config import DEFAULTS, HOST, LIMITS, HostConfig, load_config
from shunter.fleet.places import find_places
from shunter.wire.errors import ShunterError


@pytest.fixture
def home(tmp_path):
    """Writes the user's and the project's file and loads them."""

    def load(user=None, project=None, overrides=None):
        places = find_places({"HOME": str(tmp_path / "home")})
        root = tmp_path / "project"
        for file, content in ((places.config_file, user), (root / "shunter.toml", project)):
            file.parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_config(places, root, overrides)

    return load


def faults(call, *arguments, **options):
    with pytest.raises(ShunterError) as caught:
        call(*arguments, **options)
    assert caught.value.code == "CONFIG_INVALID"
    assert caught.value.hint
    return caught.value.text.splitlines()


USER = """
[[hosts]]
name = "big"
slots = 4
memory_mb = 16000
data_root = "/srv/shunter"
python = "/usr/bin/python3"

[[hosts]]
name = "small"
enabled = false

[agents.fixer]
adapter = "exec"
command = ["make", "fix"]
env = { TOKEN = "secret-value" }

[agents.codex]
model = "gpt-x"
permission = "unattended"

[defaults]
agent = "fixer"
timeout = "10m"
include = ["notes/*.md"]
close_on = "done"

[limits]
output_cap_mb = 10
quiet_s = 5
"""


class TestReading:
    def test_no_file_means_one_local_host_with_one_slot(self, home):
        config = home()
        assert config.hosts == (HostConfig("local", slots=1),)
        assert config.value("limits.output_cap_mb") == 256
        assert {setting.source for setting in config.settings.values()} == {"built-in"}

    @pytest.mark.parametrize("content", ["", "\n# nothing\n", b"\xef\xbb\xbf[defaults]\r\nwip = false\r\n"])
    def test_an_empty_file_is_as_good_as_none(self, home, content):
        assert home(content).hosts == (HostConfig("local"),)

    def test_everything_is_taken(self, home):
        config = home(USER)
        big, small = config.hosts
        assert (big.slots, big.memory_mb, big.data_root) == (4, 16000, "/srv/shunter")
        assert (small.slots, small.enabled) == (1, False)
        assert config.agents["fixer"].command == ("make", "fix")
        assert config.agents["fixer"].env == {"TOKEN": "secret-value"}
        assert (config.agents["codex"].adapter, config.agents["codex"].model) == ("codex", "gpt-x")
        assert config.value("defaults.timeout") == 600.0
        assert config.value("defaults.include") == ("notes/*.md",)
        assert config.value("limits.quiet_s") == 5.0
        assert config.source("limits.quiet_s").endswith("config.toml")
        assert config.source("limits.tail_kb") == "built-in"

    def test_values_of_variables_are_never_shown(self, home):
        config = home(USER)
        assert "secret-value" not in repr(config)
        assert config.value("agents.fixer.env") == ("TOKEN",)
        assert "secret-value" not in str(
            faults(home, '[agents.x]\nadapter = "exec"\nenv = { A = "secret-value", B = 1 }')
        )

    def test_every_setting_is_shown_with_its_source(self, home):
        settings = home(USER).settings
        assert {f"defaults.{key}" for key in DEFAULTS} | {f"limits.{key}" for key in LIMITS} <= set(settings)
        assert settings["hosts.big.slots"].value == 4
        assert settings["hosts.big.enabled"].source == "built-in"
        assert all(key == setting.key for key, setting in settings.items())

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ('"90s"', 90),
            ('"10m"', 600),
            ('"2h"', 7200),
            ('"1d"', 86400),
            ('"1.5m"', 90),
            ('"250ms"', 0.25),
            ("45", 45),
            ("0", 0),
        ],
    )
    def test_durations(self, home, text, seconds):
        assert home(f"[defaults]\ntimeout = {text}").value("defaults.timeout") == seconds


class TestPrecedence:
    @pytest.mark.parametrize(
        ("user", "project", "line", "model", "source"),
        [
            (None, None, None, None, "built-in"),
            ('[defaults]\nmodel = "u"', None, None, "u", "config.toml"),
            ('[defaults]\nmodel = "u"', 'model = "p"', None, "p", "shunter.toml"),
            ('[defaults]\nmodel = "u"', 'model = "p"', "c", "c", "command line"),
        ],
    )
    def test_the_nearer_one_wins_and_is_named(self, home, user, project, line, model, source):
        config = home(user, project, {"defaults.model": line})
        assert config.value("defaults.model") == model
        assert config.source("defaults.model").endswith(source)

    def test_false_on_the_command_line_counts_as_given(self, home):
        assert home("[defaults]\nwip = true", None, {"defaults.wip": False}).value("defaults.wip") is False


KNOWN = ", ".join(f'"{name}"' for name in sorted(MODULES))
EXEC = "[agents.mine]\nadapter = 'exec'\ncommand = ['x']\n"


class TestFaults:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("[defaults]\nmodle = 'x'", ["defaults.modle is no known key", "did you mean defaults.model?"]),
            ("[limit]\n", ["limit is no known key", "did you mean limits?"]),
            ("model = 'x'", ["model is no known key", "under [defaults]"]),
            ("zzz = 1", ["zzz is no known key", "known are hosts, agents, defaults, limits"]),
            ("defaults = 3", ["defaults = 3", "a table"]),
            ("[defaults]\ntimeout = 'soon'", ['defaults.timeout = "soon"', "a duration", "90s"]),
            ("[defaults]\ntimeout = -1", ["defaults.timeout = -1", "a duration"]),
            ("[defaults]\ntimeout = nan", ["defaults.timeout = NaN", "a duration"]),
            ("[defaults]\ntimeout = true", ["defaults.timeout = true", "a duration"]),
            ("[defaults]\nsource = 'github'", ['defaults.source = "github"', "home", "origin"]),
            ("[defaults]\npublish = true", ["defaults.publish = true", "none", "push"]),
            ("[[hosts]]\nname='a'\ntags=['origin:https://h/x']", ["hosts[1].tags", "a machine in lower case"]),
            ("[[hosts]]\nname='a'\ntags=['origin:GitHub.com']", ["hosts[1].tags", '"origin:github.com"']),
            ("[defaults]\nwip = 'yes'", ['defaults.wip = "yes"', "true or false"]),
            ("[defaults]\nwip = 1", ["defaults.wip = 1", "true or false"]),
            ("[defaults]\nmodel = ''", ['defaults.model = ""', "a text"]),
            ("[defaults]\ninclude = 'x'", ['defaults.include = "x"', "a list of texts"]),
            ("[defaults]\ninclude = [1]", ["defaults.include = [1]", "a list of texts"]),
            ("[defaults]\npermission = 'root'", ['defaults.permission = "root"', '"workspace", "unattended"']),
            ("[defaults]\nclose_on = 'maybe'", ['"never", "done", "any"']),
            ("[defaults]\nmax_followups = -1", ["defaults.max_followups = -1", "at least 0"]),
            ("[defaults]\nmax_turns = true", ["defaults.max_turns = true", "a whole number"]),
            ("[defaults]\nmax_budget_usd = 0", ["defaults.max_budget_usd = 0", "greater than 0"]),
            ("[defaults]\nagent = 'codx'", ['defaults.agent = "codx"', "claude, codex", "did you mean codex?"]),
            ("[limits]\noutput_cap_mb = 0", ["limits.output_cap_mb = 0", "from 1 to"]),
            ("[limits]\ntail_kb = 1.5", ["limits.tail_kb = 1.5", "a whole number"]),
            ("hosts = []", ["hosts = []", "[[hosts]]"]),
            ("[hosts]\nname = 'x'", ["[[hosts]]"]),
            ("[[hosts]]\nslots = 1", ["hosts[1].name is missing"]),
            ("[[hosts]]\nname = 'A'", ['hosts[1].name = "A"', "lower-case"]),
            ("[[hosts]]\nname = 'a..b'", ['hosts[1].name = "a..b"', "lower-case"]),
            ("[[hosts]]\nname = 7", ["hosts[1].name = 7", "a text"]),
            ("[[hosts]]\nname = 'a'\n[[hosts]]\nname = 'a'", ['hosts[2].name = "a"', "another host"]),
            ("[[hosts]]\nname = 'a'\n[[hosts]]\nname = 'b'", ["hosts.b.data_root", "a is the same place"]),
            ("[[hosts]]\nname = 'a'\nslots = 0", ["hosts[1].slots = 0", "from 1 to 1000"]),
            ("[[hosts]]\nname = 'a'\nslot = 2", ["hosts[1].slot is no known key", "did you mean hosts[1].slots?"]),
            ("[[hosts]]\nname = 'a'\ndata_root = 'here'", ['data_root = "here"', "an absolute path"]),
            ("[[hosts]]\nname = 'a'\nslurm = 'x'", ['hosts[1].slurm = "x"', "not supported by this version"]),
            ("[[hosts]]\nname = 'a'\nssh = 'me@a:22'", ['hosts[1].ssh = "me@a:22"', "user@machine"]),
            ("[[hosts]]\nname = 'a'\nssh = '-oProxyCommand=x'", ["hosts[1].ssh", "user@machine"]),
            ("[[hosts]]\nname = 'a'\nmemory_mb = 64\nreserve_mb = 1", ["hosts[1].reserve_mb = 1", "not both"]),
            ("[agents.mine]\n", ["agents.mine.adapter is missing", KNOWN]),
            ("[agents.mine]\nadapter = 'cline'", ['agents.mine.adapter = "cline"', KNOWN]),
            ("[agents.mine]\nadapter = 'exec'", ["agents.mine.command is missing", "make"]),
            ("[agents.mine]\nadapter = 'acp'", ["agents.mine.command is missing", '["gemini", "--acp"]']),
            ("[agents.mine]\nadapter = 'acp'\ncommand = ['x']\nresume = ['x']", ["for adapter exec alone"]),
            ("[agents.mine]\nadapter = 'exec'\ncommand = 'make'", ['agents.mine.command = "make"', "a list of texts"]),
            ("[agents.'my agent']\nadapter = 'codex'", ["agents.my agent", "lower-case"]),
            ("[agents]\nmine = 1", ["agents.mine = 1", "a table"]),
            ("[agents.codex]\nresume = ['x']", ["agents.codex.resume is for adapter exec alone"]),
            (
                EXEC + "resume = ['x', '{session_id}', '{model}']\nfields = { session = 's' }",
                ["agents.mine.resume", "{model} is for what `command` names"],
            ),
            ("[agents.mine]\nadapter = 'exec'\ncommand = ['x', '{session_id}']", ["{session_id} is for `resume`"]),
            (EXEC + "resume = ['x']", ["agents.mine.fields.session is missing", "agents.mine.resume", "{session_id}"]),
            (EXEC + "fields = {sid = 'x'}", ["agents.mine.fields", "dotted paths", "session"]),
            (EXEC + "fields = {session = 'a b'}", ["agents.mine.fields", "dotted paths"]),
            ("[agents.codex.env]\nSHUNTER_X = 'y'", ["agents.codex.env", "none of SHUNTER_*"]),
        ],
    )
    def test_a_fault_in_the_users_file(self, home, tmp_path, content, words):
        lines = faults(home, content)
        assert all(line.startswith(f"{tmp_path}/home/.config/shunter/config.toml: ") for line in lines)
        for word in words:
            assert word in "\n".join(lines)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("modle = 'x'", ["modle is no known key", "did you mean model?"]),
            ("timeout = 'x'", ['timeout = "x"', "a duration"]),
            ("[defaults]\nmodel = 'x'", ["defaults is no known key"]),
            ("[[hosts]]\nname = 'x'", ["hosts is no known key"]),
            ("agent = 'exec:rm -rf /'", ['agent = "exec:rm -rf /"', "your own config.toml"]),
            ("agent = 'acp:rm -rf /'", ['agent = "acp:rm -rf /"', 'adapter = "acp"']),
            ("permission = 'unattended'", ["permission", "your own config.toml or the command line"]),
            ("agent = 'none-such'", ['agent = "none-such"', "no agent has that name"]),
        ],
    )
    def test_a_fault_in_the_projects_file(self, home, tmp_path, content, words):
        (line,) = faults(home, None, content)
        assert line.startswith(f"{tmp_path}/project/shunter.toml: ")
        for word in words:
            assert word in line

    def test_the_user_may_do_what_a_project_may_not(self, home):
        config = home("[defaults]\nagent = 'exec:make fix'\npermission = 'unattended'")
        assert config.value("defaults.agent") == "exec:make fix"
        assert home("[defaults]\nagent = 'acp:gemini --acp'").value("defaults.agent") == "acp:gemini --acp"

    def test_all_faults_of_both_files_are_told_together(self, home):
        lines = faults(home, "[defaults]\nwip = 1\nmodel = 2\n[[hosts]]\nname = 'a'\nslots = 0", "effort = 3")
        assert len(lines) == 4

    def test_a_long_value_is_cut_and_stays_on_its_line(self, home):
        (line,) = faults(home, f'[defaults]\npermission = "{"x" * 500}\\n"')
        assert len(line) < 300

    def test_a_syntax_error_names_line_and_column(self, home):
        (line,) = faults(home, "[defaults]\nmodel = \n")
        assert "is not TOML" in line
        assert "line 2, column 9" in line

    def test_a_key_given_twice(self, home):
        assert "is not TOML" in faults(home, "[defaults]\nwip = true\nwip = false")[0]

    def test_bytes_that_are_no_utf8(self, home):
        assert "is not UTF-8: byte 0xff in line 2" in faults(home, b"[defaults]\nmodel = '\xff'")[0]

    def test_very_deep_nesting(self, home):
        assert faults(home, "a = " + "[" * 5000 + "]" * 5000)

    def test_a_directory_or_fifo_in_its_place(self, home, tmp_path):
        home()
        place = tmp_path / "home/.config/shunter/config.toml"
        os.mkfifo(place)
        assert "is not a regular file" in faults(home)[0]
        place.unlink()
        place.mkdir()
        assert "is not a regular file" in faults(home)[0]

    def test_an_enormous_file(self, home):
        assert "is larger than" in faults(home, "#" * (2 << 20))[0]

    def test_a_named_file_must_be_there(self, tmp_path):
        places = find_places({"HOME": str(tmp_path), "SHUNTER_CONFIG": str(tmp_path / "none.toml")})
        assert "does not exist" in faults(load_config, places)[0]

    @pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
    def test_a_file_that_may_not_be_read(self, home, tmp_path):
        home("")
        (tmp_path / "home/.config/shunter/config.toml").chmod(0)
        assert "cannot be read" in faults(home)[0]


def test_what_the_page_calls_built_in_is_what_a_host_without_keys_has():
    built_in = HostConfig("local")
    assert {key: each.built_in for key, each in HOST.items() if key != "name"} == {
        key: getattr(built_in, key) for key in HOST if key != "name"
    }
