"""Cassandra 5, one node: its jars by Maven, its start as its own scripts would do it."""

import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cassandra import DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy

from scripts.servers.base import CannotBeHad, Server, cache, free_port, run, spawn, wait_until

VERSION = "5.0.5"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
SHA256 = "5a30808a890e960b6c3796fe93c8a70e0feddf8b6d992a343708a535575a305c"
"""Of the list of all jars with the sha256 of each: what Maven resolves is pinned, too."""
USER = "duetime"
HEAP = "512m"
POM = f"""
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>duetime.tests</groupId>
  <artifactId>cassandra</artifactId>
  <version>{VERSION}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
LOGBACK = """
<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""
EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
)
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)


class Cassandra(Server):
    """Asks for passwords and knows rights, as no Cassandra does unless told to."""

    name = scheme = "cassandra"

    def fetch(self) -> str:
        _java()
        _jars()
        return f"Cassandra {VERSION}"

    def start(self) -> None:
        if not (self.folder / "port").exists():
            self._initialize()
        self._configure()
        log = self.folder / "log"
        self.process = spawn(self._command(), log=log)
        self._pid_file.write_text(str(self.process.pid))
        wait_until(self._is_up, self.process, log)
        wait_until(self._lets_in, self.process, log)

    @property
    def url(self) -> str:
        return self.url_of("system")

    def new_url(self, name: str) -> str:
        with self.session() as session:
            session.execute(
                f"CREATE KEYSPACE {name} WITH replication ="
                " {'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
        return self.url_of(name)

    def url_of(self, keyspace: str) -> str:
        return f"cassandra://{USER}:{self._password}@127.0.0.1:{self._port}/{keyspace}"

    @property
    def pid(self) -> int | None:
        try:
            pid = int(self._pid_file.read_text())
            # The file outlives the process, and the number may be another's meanwhile.
            mine = str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if mine else None

    @contextmanager
    def session(self, user: str = USER, password: str | None = None) -> Iterator[Any]:
        """A way in, for what the store has no call for."""
        cluster = Cluster(
            [("127.0.0.1", self._port)],
            auth_provider=PlainTextAuthProvider(user, password or self._password),
            execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(RoundRobinPolicy())},
            protocol_version=4,
        )
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()

    @property
    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def _password(self) -> str:
        return (self.folder / "password").read_text()

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def _initialize(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name, text in {
            "password": secrets.token_hex(16),
            "port": str(free_port()),
            "storage_port": str(free_port()),
            "logback.xml": LOGBACK,
        }.items():
            (self.folder / name).write_text(text)

    def _configure(self) -> None:
        storage_port = int((self.folder / "storage_port").read_text())
        seeds = [{"seeds": f"127.0.0.1:{storage_port}"}]
        settings = {
            "cluster_name": "duetime",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": seeds,
                }
            ],
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "storage_port": storage_port,
            "native_transport_port": self._port,
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "role_manager": "CassandraRoleManager",
            "permissions_validity": "0ms",
            # With one replica alone, the usual `periodic` loses what it had acknowledged.
            "commitlog_sync": "batch",
            # A read that goes through what was deleted is to be noticed long before it hurts.
            "tombstone_warn_threshold": 2_500,
            "tombstone_failure_threshold": 5_000,
            "memtable_heap_space": "96MiB",
            "memtable_offheap_space": "96MiB",
            "file_cache_size": "32MiB",
            "auto_snapshot": False,
            **self.settings,
        }
        # JSON is YAML.
        (self.folder / "cassandra.yaml").write_text(json.dumps(settings))

    def _command(self) -> list[str | Path]:
        jars = _jars()
        (agent,) = jars.glob("jamm-*.jar")
        properties = {
            "cassandra-foreground": "yes",
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.ring_delay_ms": "100",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.storagedir": self.folder / "data",
            "cassandra.superuser_setup_delay_ms": "0",
            "io.netty.tryReflectionSetAccessible": "true",
            "java.io.tmpdir": self.folder,
            "jdk.attach.allowAttachSelf": "true",
            "logback.configurationFile": self.folder / "logback.xml",
        }
        return [
            _java(),
            f"-Xms{HEAP}",
            f"-Xmx{HEAP}",
            f"-javaagent:{agent}",
            *[f"-D{name}={value}" for name, value in properties.items()],
            *[f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTS],
            *[f"--add-opens={name}=ALL-UNNAMED" for name in OPENS],
            "-cp",
            f"{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _is_up(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def _lets_in(self) -> bool:
        try:
            with self.session() as session:
                session.execute("SELECT release_version FROM system.local")
        except (DriverException, NoHostAvailable):
            self._make_role()
            return False
        return True

    def _make_role(self) -> None:
        """By the account that a new server has; that takes a moment to be there."""
        with (
            suppress(DriverException, NoHostAvailable),
            self.session("cassandra", "cassandra") as session,
        ):
            session.execute(
                f"CREATE ROLE IF NOT EXISTS {USER}"
                f" WITH PASSWORD = '{self._password}' AND LOGIN = true AND SUPERUSER = true"
            )


def _java() -> Path:
    """A Java 17: newer ones have lost what Cassandra 5 needs."""
    found = _packaged()
    if not found and os.getuid() == 0:
        _install("openjdk-17-jre-headless")
        found = _packaged()
    if not found:
        raise CannotBeHad("install the Debian package openjdk-17-jre-headless")
    return found[0]


def _packaged() -> list[Path]:
    return sorted(Path("/usr/lib/jvm").glob("java-*17-openjdk*/bin/java"))


def _jars() -> Path:
    """The folder of Cassandra's jars."""
    folder = cache() / f"cassandra-{VERSION}"
    if not folder.exists():
        new = folder.with_name(f"{folder.name}-{os.getpid()}")
        _download(new)
        try:
            new.rename(folder)
        except OSError as error:
            raise CannotBeHad(f"{folder} cannot be made: {error.strerror}") from error
    return folder


def _download(folder: Path) -> None:
    if shutil.which("mvn") is None:
        if os.getuid() != 0:
            raise CannotBeHad("install the Debian package maven")
        _install("maven")
    folder.mkdir()
    pom = folder / "pom.xml"
    pom.write_text(POM)
    # A file whose checksum is not its repository's fails the build.
    command: list[str | Path] = ["mvn", "-q", "-B", "--strict-checksums", "-f", pom, PLUGIN]
    run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])
    pom.unlink()
    found = hashlib.sha256()
    for jar in sorted(folder.glob("*.jar")):
        found.update(f"{jar.name} {hashlib.sha256(jar.read_bytes()).hexdigest()}\n".encode())
    if found.hexdigest() != SHA256:
        shutil.rmtree(folder)
        raise CannotBeHad(f"the jars are not those whose sha256 is pinned: {found.hexdigest()}")


def _install(package: str) -> None:
    run(["apt-get", "-qq", "update"])
    run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", package])
