"""The OpenTelemetry spans that agents make, as evidence for checks."""
