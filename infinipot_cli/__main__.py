"""``python -m infinipot_cli``."""

from infinipot_cli.main import main

main()
