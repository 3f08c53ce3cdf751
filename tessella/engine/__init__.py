"""The only place that knows torch: weights, the decoder, its caches, and the tail's choice."""
