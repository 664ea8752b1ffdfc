"""Every setting: its name, its rule, what it means, its default. One frozen value.

`settings` reads them from where they are kept and refuses what breaks a rule. A field whose
name holds `_s` is a duration in whole seconds; people write it under the name without that
part and with a unit (`lookahead_s_max` is `LOOKAHEAD_MAX=5m`).
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Config(Struct, frozen=True, kw_only=True):
    """All settings of one node. The order here is the order of the documentation."""

    database_url: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where timers are kept: `sqlite:////absolute/path.db`,"
            " `postgresql://user:password@host/database`, or as docs/stores.md has it.",
        ),
    ]
    api_key: Annotated[
        str,
        Meta(
            min_length=32,
            pattern="[!-~]+",
            description="What requests must carry in `X-API-Key`.",
        ),
    ]
    host: Annotated[
        str, Meta(min_length=1, description="The address to listen on: an IP or a host name.")
    ] = "0.0.0.0"  # noqa: S104 - a service listens on every interface, as documented.
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="The port to listen on; 0 picks a free one.")
    ] = 3000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="`debug` adds a line for each state change of a timer."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="`auto` is text on a terminal and JSON lines otherwise."),
    ] = "auto"

    default_num_shards: Annotated[
        int,
        Meta(
            ge=1,
            le=4_096,
            description="Shards of the namespace `default`, for good: it is read when that is first"
            " created, and nodes of a cluster must agree on it.",
        ),
    ] = 16
    history_retention_s: Annotated[
        int,
        Meta(
            ge=0,
            le=316_224_000,
            description="How long finished timers are kept in namespaces that are created without"
            " saying so, `default` included; `0s` keeps none. Those that exist are changed by"
            " `namespaces/update`.",
        ),
    ] = 604_800
    min_delay_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="A V1 timer due sooner than this is moved to it, in namespaces that are"
            " created without saying so, `default` included. Those that exist are changed by"
            " `namespaces/update`.",
        ),
    ] = 1
    purge_interval_s: Annotated[
        int, Meta(ge=1, le=86_400, description="How often history past its time is deleted.")
    ] = 300

    payload_bytes_max: Annotated[
        int, Meta(ge=0, le=16_777_216, description="The largest payload of one timer.")
    ] = 102_400
    body_bytes_max: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1_073_741_824,
            description="The largest request body; what is longer is cut off while reading.",
        ),
    ] = 16_777_216

    callback_timeout_s_max: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="The longest callback timeout that a timer may ask for.",
        ),
    ] = 30
    callback_response_bytes_max: Annotated[
        int,
        Meta(
            ge=1_024,
            le=16_777_216,
            description="The longest callback answer; the attempt fails beyond it.",
        ),
    ] = 65_536
    callback_allow_networks: Annotated[
        tuple[str, ...],
        Meta(
            description="Networks that callbacks may reach although they are loopback, private"
            " or link-local, such as `10.0.0.0/8,fd00::/8`."
        ),
    ] = ()
    callback_tls_verify: Annotated[
        bool, Meta(description="Whether the certificates of callback hosts are checked.")
    ] = True
    callback_ca_file: Annotated[
        str | None,
        Meta(description="A PEM file of certificate authorities to trust beside the system's."),
    ] = None

    in_flight_max: Annotated[
        int, Meta(ge=1, le=100_000, description="Callbacks under way at once.")
    ] = 2_000
    in_flight_per_destination_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Callbacks under way at once to one scheme, host and port.",
        ),
    ] = 200
    parked_per_destination_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Due timers that wait in memory for a busy destination; what is beyond"
            " waits in the database.",
        ),
    ] = 1_000
    unrecorded_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Answered callbacks whose outcome is not yet durable; beyond that, firing"
            " waits for the database. Each of them would fire again after a crash.",
        ),
    ] = 10_000

    window_timers_max: Annotated[
        int,
        Meta(
            ge=1_000,
            le=10_000_000,
            description="Pending timers held in memory, all shards together.",
        ),
    ] = 100_000
    window_page_timers: Annotated[
        int, Meta(ge=1, le=100_000, description="Timers read from the database at a time.")
    ] = 1_000
    lookahead_s_max: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How far ahead of their instant timers are read into memory.",
        ),
    ] = 300
    safety_read_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How often a shard is read again although nothing asks for it.",
        ),
    ] = 180
    write_batch_timers_max: Annotated[
        int, Meta(ge=1, le=100_000, description="Timers written in one transaction.")
    ] = 4_000
    drain_timeout_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600,
            description="How long callbacks under way may take to finish at shutdown, and before"
            " their shard goes to another node; those cut off fire again.",
        ),
    ] = 10

    cluster_name: Annotated[
        str,
        Meta(
            min_length=1,
            description="The cluster that the database is for; a node that names another one does"
            " not start.",
        ),
    ] = "duetime"
    node_name: Annotated[
        str | None,
        Meta(description="This node's name among the others; without it, `host name:process id`."),
    ] = None
    cluster_host: Annotated[
        str,
        Meta(
            min_length=1,
            description="The address at which other nodes reach this one: an IP or a host name."
            " They pass requests on to each other there; clients have no business with it.",
        ),
    ] = "127.0.0.1"
    cluster_port: Annotated[
        int, Meta(ge=0, le=65_535, description="The port for other nodes; 0 picks a free one.")
    ] = 0
    cluster_advertise: Annotated[
        str | None,
        Meta(
            description="Where other nodes reach this one, as `host` or `host:port`, if that is"
            " not what it listens on."
        ),
    ] = None
    cluster_secret: Annotated[
        str | None,
        Meta(
            min_length=32,
            pattern="[!-~]+",
            description="What nodes prove to each other that they know; all need the same."
            " Without it, it is made of `API_KEY`.",
        ),
    ] = None
    membership_url: Annotated[
        str | None,
        Meta(
            description="Where nodes meet: `etcd://host:port[,host:port]` or `etcds://…`, see"
            " [etcd](operations/etcd.md); without it, in the database."
        ),
    ] = None
    heartbeat_interval_s: Annotated[
        int, Meta(ge=1, le=60, description="How often a node says in the database that it lives.")
    ] = 1
    member_timeout_s: Annotated[
        int,
        Meta(
            ge=3,
            le=600,
            description="A node that has not said so for this long is dead: others take its"
            " shards. It stops firing by itself after three quarters of it. With `MEMBERSHIP_URL`"
            " it is the longest that a beat may take.",
        ),
    ] = 4
    clock_skew_s_max: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How far a node's clock may be from the database's; beyond it, it gives"
            " up its shards until it is right again.",
        ),
    ] = 5
