"""What `redrive doctor` examines in a database: reads only, each examination in short transactions of its own that the
server ends where they take too long. One module per subject; looking.py is what they share. For the package doctor.
"""
