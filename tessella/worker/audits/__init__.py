"""Audits at a node: what it keeps for them, shows, recomputes, and the traps that it may be.

ring        rows and ids of finished sessions, for an hour, in bounded memory
keeper      shows them to whom musivum ordered it for
fetching    an auditor's way to what others keep
auditor     one audit after another, when there is time
canary      a node that answers wrongly on purpose
room        all of it for one node
"""
