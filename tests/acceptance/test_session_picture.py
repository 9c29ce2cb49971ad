"""The picture at the top of the README shows what is printed today."""

from __future__ import annotations

from pathlib import Path

from tools.draw_session import PICTURE, draw, play, said


async def test_what_the_picture_shows_is_what_happens() -> None:
    assert said(draw(await play())) == said(PICTURE.read_text(encoding="utf-8")), "draw it anew: python -m tools.draw_session"


def test_the_readme_shows_it() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert "](docs/session.svg)" in readme[:2000]
