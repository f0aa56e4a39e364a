"""shunter puts coding tasks on a pool of machines and brings back a git branch."""

__version__ = "0.1.0"
