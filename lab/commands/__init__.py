"""The laboratory's commands, which :mod:`cassandra_spec.commands.checkout` adds to ``casspec``."""

from cassandra_spec.toolkit.flags import Command

COMMANDS = (
    Command("compare", "compare draft methods on the same prompts", "lab.commands.compare:define"),
    Command(
        "train-exits", "train early exits on a model's own text", "lab.commands.train_exits:define"
    ),
    Command("system", "estimate decoding speed on a device", "lab.commands.system:define"),
)
"""Commands of ``casspec``."""
BENCHMARKS = (
    Command(
        "decode",
        "measure tokens per second, beside llama.cpp and transformers",
        "lab.commands.decode:define",
    ),
    Command(
        "context",
        "measure tokens per second by context length, beside llama.cpp",
        "lab.commands.context:define",
    ),
    Command(
        "levels",
        "measure the gain of each level of drafting, by kind of text",
        "lab.commands.drafts:add_levels",
    ),
    Command(
        "codec",
        "measure the speed of the native codec, relative to memcpy and ZipNN",
        "lab.commands.codecs:add_codec",
    ),
    Command(
        "pack",
        "measure the time to pack and unpack a model, with golden's codec and the native one",
        "lab.commands.codecs:add_pack",
    ),
    Command(
        "serving",
        "measure servers with concurrent clients, with and without drafts, beside llama-server",
        "lab.commands.serving:add_serving",
    ),
    Command(
        "soak-server",
        "run random clients for some time, and compare each reply with that of the request alone",
        "lab.commands.serving:add_soak",
    ),
    Command(
        "streaming",
        "measure rounds of a target streamed from disk, by memory limit",
        "lab.commands.opening:add_streaming",
    ),
    Command(
        "draft-cache",
        "measure agreement of draft and target, by the part of the KV cache that drafts read",
        "lab.commands.drafts:add_draft_cache",
    ),
    Command(
        "sampling",
        "measure acceptance of sampled tokens, by temperature and rule",
        "lab.commands.drafts:add_sampling",
    ),
    Command(
        "structured",
        "measure tokens per verification under a JSON schema",
        "lab.commands.drafts:add_structured",
    ),
    Command(
        "opening",
        "measure how long a fresh process takes to open a model, and its memory",
        "lab.commands.opening:add_opening",
    ),
    Command(
        "spec-bench",
        "run Spec-Bench: speed-up over plain decoding, by category",
        "lab.commands.spec_bench:define",
    ),
    Command(
        "acceptance",
        "measure acceptance and traffic of drafts, by pack settings",
        "lab.commands.study:add_acceptance",
    ),
    Command(
        "small-model",
        "train a small, never quantised model for comparison",
        "lab.commands.study:add_small_model",
    ),
    Command(
        "exits",
        "measure early exits: agreement, rounds, confidence, the lossy cascade",
        "lab.commands.methods:add_exits",
    ),
    Command(
        "projection",
        "measure low-rank attention as a draft, by rank",
        "lab.commands.methods:add_projection",
    ),
    Command(
        "tables",
        "measure how well tables of n-grams predict the model's replies",
        "lab.commands.methods:add_tables",
    ),
)
"""Benchmarks of ``casspec bench``; this ``decode`` replaces the product's."""
