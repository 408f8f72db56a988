"""`python -m trifold`, where the folder of scripts is not in PATH."""

from trifold import main

main()
