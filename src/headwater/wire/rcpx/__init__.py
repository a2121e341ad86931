"""RCPX, the wire of state machines: frames or lines of JSON on TCP, sans-I/O."""
