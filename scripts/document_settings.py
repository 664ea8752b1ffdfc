"""Write the table of settings into docs/configuration.md; with --check, say if it is stale."""

from duetime.settings import SETTINGS, Setting, written
from scripts.pages import brought_up_to_date, table


def main() -> None:
    brought_up_to_date("configuration.md", {"settings": settings()})


def settings() -> str:
    return table(
        ("setting", "default", "allowed", "meaning"),
        [
            (
                f"`{setting.variable}`",
                "required" if setting.required else _default(setting),
                _allowed(setting),
                setting.meta.description or "",
            )
            for setting in SETTINGS
        ],
    )


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
