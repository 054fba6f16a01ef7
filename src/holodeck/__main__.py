"""The program, also as `python -m holodeck`."""

import sys

try:
    from holodeck.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before the program has begun
    sys.stderr.write("Interrupted\n")
    sys.exit(130)

if __name__ == "__main__":
    main()
