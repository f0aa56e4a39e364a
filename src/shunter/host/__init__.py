"""Floor 2: what runs on a host. Standard library only, Python 3.9; packed as shunter-host.pyz."""
