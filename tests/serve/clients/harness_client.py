"""lm-eval: python harness_client.py MODEL ARGUMENTS TASKS prints what each sample got as JSON."""

from __future__ import annotations

import json
import sys

import lm_eval
from lm_eval.tasks import TaskManager

model, arguments, folder, *tasks = sys.argv[1:]
done = lm_eval.simple_evaluate(
    model=model,
    model_args=arguments,
    tasks=tasks,
    task_manager=TaskManager(include_path=folder, include_defaults=False),
    bootstrap_iters=0,
    apply_chat_template="chat" in model,
)
found = {
    task: [
        {"arguments": sample["arguments"], "resps": sample["resps"]}
        for sample in sorted(samples, key=lambda one: one["doc_id"])
    ]
    for task, samples in done["samples"].items()
}
print(json.dumps(found))
