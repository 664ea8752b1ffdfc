"""What a server said on one connection, which must be whole answers and nothing else."""


def statuses(said: bytes) -> list[int]:
    """The status of each answer; none is an accident, and each has a JSON body."""
    found = []
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].startswith(b"HTTP/1.1 "), said[:200]
        status = int(lines[0].split(b" ")[1])
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
        length = int(fields.get(b"content-length", 0))
        if status != 100:
            assert status < 500
            found.append(status)
            if status != 204:
                assert fields[b"content-type"] == b"application/json"
        # A HEAD is answered without the body whose length it tells.
        if rest[:1] == b"{":
            assert len(rest) >= length
            rest = rest[length:]
        said = rest
    return found
