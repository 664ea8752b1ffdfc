"""One fault to a module: `async def run(seed) -> Report`."""
