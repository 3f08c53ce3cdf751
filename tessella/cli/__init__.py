"""The commands: each parses, calls, renders and returns. stdout is the answer, stderr the story.

main       `tessella`: chat, peers, models, up        worker    `tessella-worker`
failure    what a shell is told of an error           signals   Ctrl-C and its relatives
processes  programs that end with the one that started them
"""
