"""HTTP, at both ends: an app's errors and limits, the sockets it is served on, calls to others.

hosts      a host as a person or a stranger writes it
listening  HOST:PORT, and the sockets for it
server     the app on its sockets        connections  one client's, by Hypercorn
app        a FastAPI app of this house: its errors, limits and OpenAPI
errors     the error tree as HTTP answers
bodies     what a request may bring       limits       how often one address may ask
client     calls to JSON routes           targets      URLs that a stranger gave
"""
