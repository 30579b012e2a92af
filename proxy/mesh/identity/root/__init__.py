"""The root and the issuer: where their keys come from, and how they are exchanged."""
