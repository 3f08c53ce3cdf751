"""What an operator set, read from where it was set: flag > environment > file > default.

kinds     what a value may be, in TOML and in text
keys      the keys of one program, and how each is spelled in each source
sources   one source each: flags, the environment, a file
checking  one value, or one line about it
fold      all of them together, and who set what
masking   what may be shown
pages     an example of the file, and the page that explains it

A program brings a dataclass with its keys, their defaults and their docstrings.
"""
