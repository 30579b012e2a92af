"""Actions about who may join the mesh: invitations, tokens, revocations, the root."""
