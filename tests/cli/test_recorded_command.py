from __future__ import annotations

import sys

from clustertwin.cli.recorded_command import recorded_command


def test_a_recorded_command_has_neither_directories_nor_passwords(monkeypatch):
    words = ["learn", "run", "--recording", "/home/ada/my day", "--mlflow=https://ada:secret@mlflow.example.org"]
    monkeypatch.setattr(sys, "argv", ["/opt/bin/twin", *words])
    assert recorded_command() == "twin learn run --recording 'my day' --mlflow=mlflow.example.org"
