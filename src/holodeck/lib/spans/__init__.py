"""The OpenTelemetry spans that agents make, as evidence for checks, steps and judges."""
