"""Why a timer that is due has not fired yet: what it waits for, in words."""

from duetime.shard import Shard
from sim.facts import TimerFacts
from sim.process import Process
from sim.store import Database


def pending(facts: TimerFacts, processes: list[Process], database: Database) -> str:
    """What keeps this timer. Looks into the engine, and changes nothing."""
    if database.down:
        return "the database is down"
    alive = [process for process in processes if not process.ended]
    if not alive:
        return "no node is alive"
    reasons = [f"{process.name}: {_in_process(facts, process, database)}" for process in alive]
    return "; ".join(reasons)


def _in_process(facts: TimerFacts, process: Process, database: Database) -> str:
    if process.loop.state == "frozen":
        return "is frozen"
    if not process.started:
        return "has not started, or is stopping"
    shard = process.node.shards.get(facts.shard)
    if shard is None:
        return f"does not own shard {facts.shard}"
    held = database.memory._claims[facts.shard]
    if held.version != shard.lease.version:
        return f"lost shard {facts.shard} to {held.owner} and has not noticed"
    if shard.closed:
        return "its shard is closed"
    if shard.paused:
        return "its shard waits for a new lease after a failed write"
    return _in_shard(facts, shard, process)


def _in_shard(facts: TimerFacts, shard: Shard, process: Process) -> str:
    row, uuid = facts.row, facts.uuid
    firing = process.node.firing
    attempt = shard.executing.get(uuid)
    if attempt is not None:
        sent = facts.sent[-1] if facts.sent else None
        if sent is not None and sent.meaning is not None:
            return "answered, and its outcome is not recorded" + _held(shard, uuid)
        return f"its callback is under way since {attempt.started_at}"
    if uuid in shard._held:
        return "an operation holds its key" + _held(shard, uuid)
    waiting = shard.window.get(uuid)
    if waiting is not None:
        for destination in firing._destinations.values():
            if any(timer is waiting for _, timer in destination.queue):
                return (
                    f"parked for {destination.name}: {destination.in_flight} in flight there,"
                    f" {firing.in_flight} on the node, {firing.unrecorded} unrecorded,"
                    f" {'blocked' if destination in firing._blocked else 'not blocked'}"
                )
        if row is not None and waiting.execute_at != row.execute_at:
            return f"in the window at another time, {waiting.execute_at}"
        at = shard.wake_at
        return f"in the window, not handed to firing; the shard wakes at {at}"
    if row is not None and row.cursor > shard.window.loaded_to:
        state = "a page is being read" if shard._reading else "no page is being read"
        return f"the window ends at {shard.window.loaded_to.execute_at}; {state}, wakes at " + (
            f"{shard.wake_at}"
        )
    return "the window covers its time and does not have it: memory has lost it"


def _held(shard: Shard, uuid: bytes) -> str:
    writes = [write for write in (*shard.requests, *shard.outcomes) if write.uuid == uuid]
    if writes:
        return " (its write is pending)"
    if any(write.uuid == uuid for write in shard._unrecorded):
        return " (kept for the next lease)"
    return " (its write is under way)" if shard.writing else " (nothing is being written)"
