"""Every byte layout, as pure functions over buffers. No file is opened here."""
