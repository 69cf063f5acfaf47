"""The encoder's suites, its Verilated top behind golden's interface, and its rates."""
