"""What musivum is asked and answers, as JSON: one model a body, the same at both doors.

rules       what is checked beside a schema        fields      what bodies are made of
mesh        what anyone asks about the mesh        calls       what nodes ask for
operator    what the operator asks                 ledger      work and its pay
"""
