"""What the GitHub action does once reconciler is installed: plans or applies, says how it went, and comments on the pull request.

Its inputs come as INPUT_… variables, everything else as GitHub gives it to every step. Only the standard library is needed.

Invariant: it ends with the exit code of reconciler, except that a plan with changes (2) is no failure. A comment that cannot be
written is a warning: the plan is in the log and in the summary. The credentials are in a file only as long as they are needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

CHANGES, USAGE = 2, 64
COMMENT_LIMIT = 60_000
PAGE = 100
SECONDS = 30
_ANNOTATION = re.compile(r"::(error|warning) file=(.*?),line=(\d+),col=(\d+),title=(.*?)::(.*)")
_PULL_REQUEST_EVENTS = ("pull_request", "pull_request_target")


@dataclass(frozen=True)
class Ended:
    """How the command ended, and what it wrote on the way: to stderr, to the summary, to the file of the plan."""

    code: int
    errors: str = ""
    summary: str = ""
    plan: Path | None = None


class NotCommented(Exception):
    """GitHub did not take the comment."""


def main(environ: Mapping[str, str]) -> int:
    """Run the step; its exit code."""
    command = environ["INPUT_COMMAND"].strip()
    if command not in ("plan", "apply"):
        print(f"::error::command is {command!r}; it is plan or apply")
        return USAGE
    with _surroundings(environ) as inner:
        ended = _planned(environ, inner) if command == "plan" else Ended(_run(_arguments(environ, "apply", "--yes"), inner))
    _tell(environ, ended)
    if command == "plan" and environ["INPUT_COMMENT"].strip().lower() == "true":
        _comment(environ, ended)
    return 0 if command == "plan" and ended.code == CHANGES else ended.code


def _planned(environ: Mapping[str, str], inner: dict[str, str]) -> Ended:
    """The plan in the log, as Markdown, and in a file; from one look."""
    with tempfile.TemporaryDirectory(dir=environ["RUNNER_TEMP"], prefix="reconciler-") as folder:
        summary = Path(folder, "summary.md")
        plan = Path(environ["RUNNER_TEMP"], f"plan-{_identity(environ)}.json")
        plan.unlink(missing_ok=True)
        summary.touch()
        arguments = _arguments(environ, "plan", "--detailed-exitcode", "--out", str(plan))
        errors: list[str] = []
        code = _run(arguments, inner | {"GITHUB_STEP_SUMMARY": str(summary)}, errors)
        text = summary.read_text(encoding="utf-8")
    with Path(environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as page:
        page.write(text)
    return Ended(code, "".join(errors), text, plan if plan.exists() else None)


def _arguments(environ: Mapping[str, str], command: str, *options: str) -> list[str]:
    """The command line; what the action was not given is left to the variables and the manifests."""
    line = [str(Path(sys.executable).with_name("reconciler"))]
    for flag, name in (("--server", "INPUT_SERVER"), ("--owner", "INPUT_OWNER")):
        line += [flag, environ[name].strip()] if environ[name].strip() else []
    line += [command, *options]
    for path in environ["INPUT_PATH"].splitlines():
        line += ["--file", path.strip()] if path.strip() else []
    line += ["--env", environ["INPUT_ENVIRONMENT"].strip()] if environ["INPUT_ENVIRONMENT"].strip() else []
    return line + shlex.split(environ["INPUT_ARGS"])


@contextmanager
def _surroundings(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of the command: without the inputs, with the credentials in a file that nobody else may read."""
    inner = {name: value for name, value in environ.items() if not name.startswith("INPUT_")}
    if not environ["INPUT_CREDS"].strip():
        yield inner
        return
    with tempfile.NamedTemporaryFile("w", dir=environ["RUNNER_TEMP"], suffix=".creds", encoding="utf-8") as file:
        file.write(environ["INPUT_CREDS"])
        file.flush()
        yield inner | {"NATS_CREDS": file.name}


def _run(arguments: Sequence[str], environ: Mapping[str, str], errors: list[str] | None = None) -> int:
    """Runs it in the log of the step; what it says on stderr is kept as well."""
    sys.stdout.flush()
    process = subprocess.Popen(arguments, env=environ, stderr=None if errors is None else subprocess.PIPE, text=True)
    with process:
        for line in process.stderr or ():
            print(line, end="", file=sys.stderr, flush=True)
            if errors is not None:
                errors.append(line)
    return process.returncode


def _tell(environ: Mapping[str, str], ended: Ended) -> None:
    """The outputs of the step."""
    outputs = {"exit-code": str(ended.code)}
    if ended.plan:
        document = json.loads(ended.plan.read_text(encoding="utf-8"))
        changes = "true" if document["changes"] else "false"
        outputs |= {"changes": changes, "fingerprint": document["fingerprint"], "plan": str(ended.plan)}
    with Path(environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as page:
        page.writelines(f"{name}={value}\n" for name, value in outputs.items())


# -- the comment ----------------------------------------------------------------------------------------------------------------


def _comment(environ: Mapping[str, str], ended: Ended) -> None:
    """One comment for each owner, environment and path; the next plan of the same takes its place."""
    if environ["GITHUB_EVENT_NAME"] not in _PULL_REQUEST_EVENTS:
        return
    event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    comments = f"repos/{environ['GITHUB_REPOSITORY']}/issues"
    marker = f"<!-- reconciler {_identity(environ)} -->"
    body = {"body": f"{marker}\n{ended.summary or _failure(ended)}"}
    try:
        found = _found(environ, f"{comments}/{event['pull_request']['number']}/comments", marker)
        if found is None:
            _ask(environ, "POST", f"{comments}/{event['pull_request']['number']}/comments", body)
        else:
            _ask(environ, "PATCH", f"{comments}/comments/{found}", body)
    except NotCommented as error:
        print(f"::warning::the plan is in the log and in the summary, but not on the pull request: {error}")


def _found(environ: Mapping[str, str], path: str, marker: str) -> int | None:
    """The comment that is there already; what people write, they can change, so it has to be a bot's, as this job is one."""
    page = 1
    while comments := _ask(environ, "GET", f"{path}?per_page={PAGE}&page={page}"):
        for comment in comments:
            if comment["user"]["type"] == "Bot" and (comment["body"] or "").startswith(marker):
                number: int = comment["id"]
                return number
        page += 1
    return None


def _ask(environ: Mapping[str, str], method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 - JSON
    request = urllib.request.Request(  # noqa: S310 - the URL is GitHub's own
        f"{environ['GITHUB_API_URL']}/{path}",
        method=method,
        data=None if document is None else json.dumps(document).encode(),
        headers={
            "Authorization": f"Bearer {environ['INPUT_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the same
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            way_out = "; give the job `permissions: {pull-requests: write}`" if error.code in (401, 403, 404) else ""
            msg = f"GitHub answered {error.code} {error.reason}{way_out}"
            raise NotCommented(msg) from error
    except (OSError, TimeoutError) as error:
        msg = f"GitHub cannot be reached: {error}"
        raise NotCommented(msg) from error


def _failure(ended: Ended) -> str:
    """What is said where there is no plan."""
    said = "\n".join(_plain(line) for line in ended.errors.splitlines())
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", said)), default=0))
    shown = said[:COMMENT_LIMIT]
    cut = "" if shown == said else "\n… and more, in the log of the workflow.\n"
    return f"### No plan: reconciler ended with exit code {ended.code}\n\n{fence}\n{shown}\n{fence}\n{cut}"


def _plain(line: str) -> str:
    """An annotation as people write it."""
    found = _ANNOTATION.fullmatch(line)
    if found is None:
        return line
    kind, file, row, column, title, message = (unquote(part) for part in found.groups())
    return f"{'warning: ' if kind == 'warning' else ''}{file}:{row}:{column}: {title}: {message}"


def _identity(environ: Mapping[str, str]) -> str:
    """Tells the plans of one pull request apart."""
    inputs = ("INPUT_OWNER", "INPUT_ENVIRONMENT", "INPUT_PATH", "INPUT_SERVER", "INPUT_ARGS")
    variables = ("RECONCILER_OWNER", "RECONCILER_ENV", "NATS_URL", "NATS_CONTEXT")
    told = [environ.get(name, "").strip() for name in (*inputs, *variables)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main(os.environ))
