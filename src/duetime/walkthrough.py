"""What `duetime dev` says to try: commands that work as they stand, pasted in this order."""

import shlex
import sys
from pathlib import Path

RECEIVER_PORT = 4000


def walkthrough(url: str, *, key: str, data: Path) -> str:
    """Words for the terminal in which `duetime dev` has just begun to listen at `url`."""
    python = shlex.quote(sys.executable)
    receiver = f"http://127.0.0.1:{RECEIVER_PORT}/hello"
    return f"""
Duetime is listening on {url} (documentation: {url}/docs)
  API key   {key}
  kept in   {data.resolve()}

Try it. In a second terminal, a receiver that shows each callback as it arrives:

  {python} -m duetime.testing.receiver {RECEIVER_PORT}

In a third one, a timer that is due in three seconds:

  curl -s {url}/timers/create \\
    -H 'X-API-Key: {key}' -H 'Content-Type: application/json' \\
    -d '{{"namespace": "default", "id": "hello", "callbackUrl": "{receiver}",
         "executeAt": "'$({python} -c '{_SOON}')'", "payload": {{"said": "hello"}}}}'

And what became of it:

  curl -s {url}/timers/get \\
    -H 'X-API-Key: {key}' -H 'Content-Type: application/json' \\
    -d '{{"namespace": "default", "timerId": "hello"}}'

Ctrl-C drains and stops; what is pending is kept and fires after the next start.
"""


# Python, not `date`: GNU's and BSD's do not share a way to say it.
_SOON = 'import time; print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4)))'
