"""The decoder's suite, its Verilated top behind golden's interface, and its rates."""
