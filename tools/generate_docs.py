"""Writes the pages of the documentation that are made from the program itself, and the dashboard; `--check` only compares.

    python -m tools.generate_docs [--check]

Invariant: the same program gives the same files, whatever the terminal and the environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from reconciler.cli.app import app
from reconciler.cli.commands import COMMANDS
from reconciler.cli.saying.exitcodes import MEANINGS
from reconciler.manifests.files.loader import Loader
from reconciler.manifests.reference.fields import KINDS, FieldDoc, fields_of, model_in
from reconciler.observe.metrics import Metrics
from reconciler.plan.comparing.display import yaml_path
from reconciler.plan.comparing.hazards import HAZARDS
from reconciler.render.graph.svg import svg
from reconciler.sources.graph.views import declared_topology
from tools.chart_readme import CHART, readme
from tools.dashboard.grafana import dashboard
from tools.dashboard.picture import drawn

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DASHBOARD = ROOT / "charts" / "reconciler" / "files" / "dashboard.json"
NOTICE = "<!-- Written by tools/generate_docs.py (`make docs`); changes made here are lost. -->"


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    made = {"fields": _fields_page, "cli": _cli_page, "metrics": _metrics_page}
    pages = {DOCS / f"{name}.md": _page(lines()) for name, lines in made.items()}
    pages[DOCS / "graph.svg"] = _picture()
    pages[CHART / "README.md"] = readme()
    made_dashboard = dashboard()
    pages[DASHBOARD] = json.dumps(made_dashboard, indent=2) + "\n"
    pages[DOCS / "runbooks" / "dashboard.svg"] = drawn(made_dashboard)
    if "--check" not in sys.argv[1:]:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


def _page(lines: Iterator[str]) -> str:
    return "\n".join([NOTICE, *lines]).rstrip() + "\n"


def _picture() -> str:
    """The sourcing topology of the manifests this repository comes with."""
    manifests = Loader().load([str(DOCS.parent / "manifests")], "dev")
    return svg(declared_topology(manifests.desired).sourcing().without_readers())


def _fields_page() -> Iterator[str]:
    yield from (
        "# Every field",
        "",
        "From the tables that validate, compare and send them. `reconciler explain KIND.FIELD` shows one of them.",
    )
    yield from ("", "- **Default**: what the server takes (or, for a field of ours, what we take) where a manifest says nothing.")
    yield "- **Later**: what may be done to it on a live resource. Empty: not a matter of the server."
    yield "- **Server**: the first one that knows it, where not every supported one does."
    described: set[type[BaseModel]] = set()
    for kind, model in KINDS.items():
        yield from ("", f"## {kind}", "", _summary(model), "")
        yield from _table(model)
        for path, inner in _inner(model, kind):
            if inner in described:
                continue
            described.add(inner)
            yield from ("", f"### {path}", "", _summary(inner), "")
            yield from _table(inner)

    yield from ("", "## What changing a field can lose", "")
    yield "Of a live resource. A plan blocks what would lose something, with the code beside it, until it is allowed by name."
    yield ""
    for kind, hazards in HAZARDS.items():
        yield from (f"### {kind}s", "", "| field | touches | blocked as |", "|---|---|---|")
        for name, hazard in hazards.items():
            code = f"`{hazard.code}`" if hazard.code else ""
            yield f"| `{yaml_path(kind, name)}` | {hazard.says} | {code} |"
        yield ""


def _metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "What `GET /metrics` of a [daemon](daemon.md) has, each combination of labels from the start. None is per resource:"
    yield "that is what `/status` is for. [The alerts with their runbooks](runbooks/README.md) and"
    yield "[the dashboard](runbooks/dashboard.md) have pages of their own."
    yield ""
    yield "| metric | type | labels | |"
    yield "|---|---|---|---|"
    for family in Metrics().registry.collect():
        if family.name.startswith("reconciler_process_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        yield f"| `{name}` | {family.type} | {', '.join(labels)} | {family.documentation} |"
    yield ""
    yield "Memory, CPU, file descriptors and start time of the process are there as `reconciler_process_*`."


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| field | type | default | later | server | |"
    yield "|---|---|---|---|---|---|"
    for field in fields_of(model).values():
        required = " **required**" if field.required else ""
        cells = (
            f"`{field.name}`{required}",
            _code(str(field.shape)),
            _default(field),
            field.mutability,
            _server(field),
            field.doc,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(shape: str) -> str:
    return f"`{shape}`" if "|" in shape else shape


def _default(field: FieldDoc) -> str:
    if field.default is None:
        return ""
    return f"`{str(field.default).lower()}`" if isinstance(field.default, bool) else f"`{field.default}`"


def _server(field: FieldDoc) -> str:
    return f"{field.server}" if field.level > 1 else ""


def _inner(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for field in fields_of(model).values():
        inner = model_in(field.shape)
        if inner:
            yield f"{path}.{field.name}", inner
            yield from _inner(inner, f"{path}.{field.name}")


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().split("\n")[0]


def _cli_page() -> Iterator[str]:
    root = typer.main.get_command(app)
    yield from ("# The command line", "", f"{root.help}", "", "`reconciler [OPTIONS] COMMAND`")
    yield from ("", "## Options before the command", "")
    yield from _options(root)
    for name in COMMANDS:
        yield from _command(f"reconciler {name}", root.commands[name])  # type: ignore[attr-defined]  # the root is a group
    yield from ("", "## Exit codes", "", "| exit | meaning |", "|---|---|")
    for code, meaning in MEANINGS.items():
        yield f"| {int(code)} | {meaning} |"


def _command(usage: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - typer's commands have a private type
    arguments = [_shown(parameter) for parameter in command.params if _is_argument(parameter)]
    yield from ("", f"## {usage}" if " " not in usage.removeprefix("reconciler ") else f"### {usage}", "", f"{command.help}")
    inner = getattr(command, "commands", {})
    if arguments:
        yield from ("", f"`{' '.join([usage, *arguments])}`")
    if any(not _is_argument(parameter) for parameter in command.params):
        yield ""
        yield from _options(command)
    for name in sorted(inner):
        yield from _command(f"{usage} {name}", inner[name])


def _shown(argument: Any) -> str:  # noqa: ANN401 - as above
    name = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1:
        return f"[{name}]..."
    return name


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401 - as above
    return bool(parameter.param_type_name == "argument")


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    yield "| option | environment | |"
    yield "|---|---|---|"
    for option in command.params:
        if _is_argument(option):
            continue
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        envvar = option.envvar if isinstance(option.envvar, str) else ""
        choices = _choices(option)
        text = (option.help or "") + (f": {', '.join(f'`{choice}`' for choice in choices)}" if choices else "")
        yield f"| {flags} | {f'`{envvar}`' if envvar else ''} | {text.replace('|', chr(92) + '|')} |"


def _choices(option: Any) -> tuple[str, ...]:  # noqa: ANN401 - as above
    annotation = option.type_descriptor.annotation
    literals = (part for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal)
    return tuple(choice for literal in literals for choice in get_args(literal))


if __name__ == "__main__":
    sys.exit(main())
