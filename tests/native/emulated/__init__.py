"""The native library of another processor, called in an emulated process.

``python -m tests.native.emulated tests/native/test_linear.py`` runs tests against a library for
64-bit Arm, which is compiled by ``aarch64-linux-gnu-g++`` and runs in ``qemu-aarch64-static``.
"""
