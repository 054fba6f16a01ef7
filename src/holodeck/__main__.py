"""`python -m holodeck`."""

from holodeck.cli.main import main

if __name__ == "__main__":
    main()
