"""`duetime copy` between files, as a person runs it."""

from pathlib import Path

from duetime.testing.receiver import Receiver
from tests.acceptance.processes import instant_in, run, serving

FAR = "2099-01-01T00:00:00Z"


async def test_what_was_served_from_one_file_is_served_from_its_copy(tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    async with Receiver() as receiver:
        async with serving(tmp_path, DATABASE_URL=first) as duetime:
            for name, at in (("done", instant_in(1)), ("waits", FAR)):
                await duetime.v1(
                    "timers/create",
                    id=name,
                    executeAt=at,
                    callbackUrl=receiver.url,
                    payload={"n": name},
                )
            await duetime.until_status("done", "completed")
            code, out, err = await run(tmp_path, "copy", first, second)
            assert (code, out) == (1, "")
            assert "is in use by process" in err
            before = await duetime.v1("timers/list")
        code, out, err = await run(tmp_path, "copy", first, second)
        assert (code, err) == (0, "")
        copied = "copied 1 namespaces, 1 pending timers and 1 finished ones"
        assert out.splitlines()[-1] == copied
        async with serving(tmp_path, DATABASE_URL=second) as duetime:
            assert await duetime.v1("timers/list") == before
    code, _, err = await run(tmp_path, "copy", first, second)
    assert code == 1
    assert err == "duetime: the destination is not empty: it has namespaces already\n"


async def test_what_cannot_be_copied_is_refused_in_one_line(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/x.db"
    for urls, reason in (
        (("memory:", file), "memory keeps nothing: there is nothing to copy"),
        ((file, "mongo:x"), "DATABASE_URL has the unknown scheme 'mongo'"),
        ((file, f"sqlite:///{tmp_path}/y.db"), "the source has no namespaces"),
    ):
        code, _, err = await run(tmp_path, "copy", *urls)
        assert code in (1, 2)
        assert len(err.splitlines()) == 1
        assert reason in err
