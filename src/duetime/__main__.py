"""`python -m duetime`."""

from duetime.cli import main

main(prog_name="duetime")
