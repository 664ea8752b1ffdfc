"""Write the table of settings into docs/configuration.md; with --check, say if it is stale."""

import sys
from pathlib import Path

from duetime.settings import SETTINGS, Setting, written

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN = "<!-- settings: written by `make docs` -->\n"
END = "<!-- end of settings -->"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    current = before + BEGIN + table() + END + after
    if "--check" not in sys.argv:
        PAGE.write_text(current, encoding="utf-8")
    elif current != page:
        sys.exit("docs/configuration.md is stale: run `make docs`")


def table() -> str:
    lines = ["| setting | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for setting in SETTINGS:
        default = "required" if setting.required else _default(setting)
        lines.append(
            f"| `{setting.variable}` | {default} | {_allowed(setting)} |"
            f" {setting.meta.description} |"
        )
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    text = written(setting, setting.default)
    return f"`{text}`" if text else "none"


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.meta.ge is not None:
        low, high = written(setting, setting.meta.ge), written(setting, setting.meta.le)
        return f"`{low}` to `{high}`"
    if setting.type is bool:
        return "`true`, `false`"
    if setting.field == "callback_allow_networks":
        return "networks in CIDR notation"
    if setting.meta.pattern is not None:
        return f"{setting.meta.min_length} characters or more, printable ASCII, no spaces"
    return "text"


if __name__ == "__main__":
    main()
