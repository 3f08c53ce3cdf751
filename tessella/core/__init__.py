"""The ground: values and rules. Nothing here opens, waits, reads a clock or allocates a tensor."""
