"""HPACK (RFC 7541): the decoder, the encoder, the static table and the Huffman code."""
