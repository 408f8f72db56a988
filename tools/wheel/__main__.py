"""`python -m trifold`, if the folder of scripts is not in PATH."""

from trifold import main

main()
