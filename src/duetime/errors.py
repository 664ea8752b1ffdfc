"""Everything that can go wrong, as types that carry their facts.

`DuetimeError` is the root. Errors below `RequestError` are the caller's to mend and every
surface turns them into its own shape; `StoreError` is about the database, `ConfigError`
about the settings.
"""


class DuetimeError(Exception):
    """Root of all errors that Duetime raises on purpose."""


class ConfigError(DuetimeError):
    """A setting is missing or breaks a rule. The message names key, rule and value."""


class RefusedStart(ConfigError):
    """This node must not take part in the cluster that its settings lead to."""


class WrongCluster(RefusedStart):
    """The database belongs to another cluster."""

    def __init__(self, found: str, own: str) -> None:
        self.found = found
        self.own = own
        super().__init__(f"the database belongs to cluster {found!r}, and CLUSTER_NAME is {own!r}")


class NodeNameTaken(RefusedStart):
    """Another live node has this name."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        at = f" at {address}" if address else ""
        super().__init__(f"a node named {name!r} is alive{at}: give this one another NODE_NAME")


class OtherShards(RefusedStart):
    """The cluster's `default` namespace was created with another number of shards."""

    def __init__(self, found: int, own: int) -> None:
        self.found = found
        self.own = own
        super().__init__(
            f"the namespace 'default' has {found} shards, and DEFAULT_NUM_SHARDS is {own}"
        )


class RequestError(DuetimeError):
    """The request cannot be done as asked; the message says why to the one who asked."""


class InvalidInput(RequestError):
    """A field has a wrong value.

    `problem` continues a sentence that begins with the field's name ("must be …"), so that
    each surface can call the field what its users do. `field` is the path in the core's own
    names, parts joined by `/`; without one, `problem` stands alone.
    """

    def __init__(self, problem: str, field: str | None = None) -> None:
        self.problem = problem
        self.field = field
        super().__init__(problem if field is None else f"{field} {problem}")


class PayloadTooLarge(InvalidInput):
    """The payload is above the configured bound."""

    def __init__(self, size: int, size_max: int, field: str) -> None:
        self.size = size
        self.size_max = size_max
        super().__init__(f"is {size} bytes, at most {size_max} are allowed", field)


class UnknownNamespace(InvalidInput):
    """A timer operation names a namespace that does not exist."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        super().__init__(f"{namespace!r} does not exist", "namespace")


class NamespaceNotFound(RequestError):
    """A namespace operation names a namespace that does not exist."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"namespace {name!r} not found")


class NamespaceExists(RequestError):
    """A namespace of that name is already there."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"namespace {name!r} already exists")


class NodeNotFound(RequestError):
    """No live node has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no live node is named {name!r}")


class TimerNotFound(RequestError):
    """No unfinished timer, and nothing in history, has this key."""

    def __init__(self, namespace: str, id: str) -> None:
        self.namespace = namespace
        self.id = id
        super().__init__("timer not found")


class TimerExecuting(RequestError):
    """The timer's callback is under way: it can be neither changed nor canceled now."""

    def __init__(self, namespace: str, id: str) -> None:
        self.namespace = namespace
        self.id = id
        super().__init__("the timer's callback is under way")


class TimerFinished(RequestError):
    """The timer has ended as `status`: it can be neither changed nor canceled any more."""

    def __init__(self, namespace: str, id: str, status: str) -> None:
        self.namespace = namespace
        self.id = id
        self.status = status
        super().__init__(f"the timer is {status}")


class Unavailable(RequestError):
    """The request cannot be served now. Whether its write took effect is not known."""

    def __init__(self, reason: str, *, retry_after_s: int = 1) -> None:
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class ShardMoved(Unavailable):
    """The timer's shard is not here, or not any more: nothing was done; its owner can do it."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        super().__init__(f"shard {shard} is on its way to another node")


class StoreError(DuetimeError):
    """The database refused or could not be reached.

    After a failed write nothing is known about whether it took effect, unless a subclass
    says so.
    """


class LeaseLost(StoreError):
    """Another node owns this shard now. Stop its work; never retry under this lease."""

    def __init__(self, shard: int, version: int) -> None:
        self.shard = shard
        self.version = version
        super().__init__(f"shard {shard}: lease v{version} was superseded")


class StoreUnavailable(StoreError):
    """The database cannot be reached or cannot serve now (disk full, locked, gone)."""


class SchemaTooNew(StoreError):
    """The database was written by a newer Duetime than this one."""

    def __init__(self, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            f"the database has schema version {found}, this Duetime knows up to {known}:"
            " upgrade Duetime"
        )
