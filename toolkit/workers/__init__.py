"""One function over many items: in processes of this machine, or on several machines."""
