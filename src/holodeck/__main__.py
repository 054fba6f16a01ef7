"""The program, also as `python -m holodeck`."""

try:
    import os
    import sys

    if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109
        del sys.path[0]  # or a yaml.py in the working folder would stand in for a library

    from holodeck.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before the program has begun
    sys.stderr.write("Interrupted\n")
    sys.exit(130)

if __name__ == "__main__":
    main()
