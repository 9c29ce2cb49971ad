"""Which stream is filled from which: as declared, as a server shows it, as a daemon tells it."""
