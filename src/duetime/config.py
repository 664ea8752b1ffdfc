"""Configuration: one frozen value, refused at start by key, value and rule."""

from msgspec import Struct


class Config(Struct, frozen=True, kw_only=True):
    """Every setting, with its default. The environment's name is the field's, in capitals."""

    database_url: str
    api_key: str
    host: str = "0.0.0.0"  # noqa: S104 - a service listens on every interface, as documented.
    port: int = 3000
    log_level: str = "info"
    log_format: str = "auto"

    default_num_shards: int = 16
    history_retention_s: int = 604_800
    min_delay_s: int = 1
    purge_interval_s: int = 300

    payload_bytes_max: int = 102_400
    body_bytes_max: int = 16_777_216

    callback_timeout_s_max: int = 30
    callback_response_bytes_max: int = 65_536
    callback_allow_networks: tuple[str, ...] = ()
    callback_tls_verify: bool = True
    callback_ca_file: str | None = None

    in_flight_max: int = 2_000
    in_flight_per_destination_max: int = 200
    parked_per_destination_max: int = 1_000

    window_timers_max: int = 100_000
    window_page_timers: int = 1_000
    lookahead_s_max: int = 300
    safety_read_s: int = 180
    write_batch_timers_max: int = 4_000
    drain_timeout_s: int = 10
