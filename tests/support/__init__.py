"""The parts behind `fakes`: a fake model server, a scripted backend and the real command line."""
