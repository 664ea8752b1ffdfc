"""schemathesis against /openapi.json of a live server: it keeps to what it says of itself."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from tests.acceptance.processes import KEY, serving

from fuzz.report import Report

EXAMPLES = 40
RUN_S_MAX = 150.0
REQUEST_S_MAX = 10
# No schema can say all of what is refused: an instant in the past, a URL that leads nowhere.
NOT_CHECKED = ("positive_data_acceptance", "negative_data_rejection")


async def run(directory: Path, seed: int) -> Report:
    async with serving(directory) as duetime:
        command = [
            *("run", f"{duetime.url}/openapi.json", "--header", f"X-API-Key: {KEY}"),
            *("--seed", str(seed), "--max-examples", str(EXAMPLES), "--no-color"),
            *("--phases", "examples,coverage,fuzzing"),
            *("--exclude-checks", ",".join(NOT_CHECKED)),
            *("--request-timeout", str(REQUEST_S_MAX)),
        ]
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            *command,
            cwd=directory,
            stdout=PIPE,
            stderr=STDOUT,
        )
        try:
            async with asyncio.timeout(RUN_S_MAX):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        text = out.decode(errors="replace")
        report = Report()
        if process.returncode != 0:
            report.problems.append(text)
        report.problems += [str(line) for line in duetime.log if line.get("level") == "error"]
        cases = re.search(r"(\d+) generated", text)
        report.add("api requests", int(cases[1]) if cases else 0)
        if not cases:
            report.problems.append("schemathesis made no requests")
        return report
