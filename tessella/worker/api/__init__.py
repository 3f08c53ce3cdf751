"""A node's HTTP API, as OpenAI's clients speak it.

    app       the app, made of Rooms                rooms     what the routes lead to
    chat      /v1/chat/completions                  text      the routes for a text, or a gap in one
    catalogue /v1/models                            about     /health, /status, /metrics

    reading   bodies, strictly                      bodies    what may be asked
    messages, tools   parts of a chat               wanted    what a body comes to
    voices    one answer, as it is heard            delivery  answers, whole or as events
    logprobs  log-probabilities in two shapes       shapes    the answers, for OpenAPI

A route reads a body into `Wanted` and returns a `Delivery`, which asks `Rooms.answer` once for each
choice and ends when the client does.
"""
