"""Certificates for tests: a CA of its own, and one certificate for localhost signed by it."""

from __future__ import annotations

from pathlib import Path

import trustme


class Pki:
    """A CA, and a certificate with its key that serves servers and clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        authority.cert_pem.write_to_path(self.ca)
        issued.private_key_pem.write_to_path(self.key)
        for number, pem in enumerate(issued.cert_chain_pems):
            pem.write_to_path(self.cert, append=number > 0)

    def block(self, more: str = "") -> str:
        """The `tls` block of a server with this certificate."""
        return f'tls {{ cert_file: "{self.cert}", key_file: "{self.key}", ca_file: "{self.ca}"\n{more} }}'
