"""Bytes to typed requests and back, without sockets."""
