"""Some of the walks of `python -m tools.prove_walks`, the same each time; it makes thousands of them."""

from __future__ import annotations

import subprocess
import sys

from tests.support.choice import examples

SEED = 1
WALKS = 150


def test_wherever_a_random_walk_leads_each_message_arrives_once_and_in_the_end_there_is_nothing_to_do() -> None:
    command = [sys.executable, "-m", "tools.prove_walks", "--model", str(examples(WALKS)), "--seed", str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 kills" not in done.stdout
    assert " 0 silences" not in done.stdout
