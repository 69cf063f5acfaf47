"""litellm: python litellm_client.py ADDRESS PROMPT prints its replies as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm

address, prompt = sys.argv[1:]
asked: dict[str, Any] = {"model": "openai/tiny", "api_base": f"{address}/v1", "api_key": "none"}
asked |= {"temperature": 0, "max_tokens": 20}
messages = [{"role": "system", "content": "word2 word4"}, {"role": "user", "content": prompt}]
whole = litellm.completion(**asked, messages=messages)
pieces = litellm.completion(**asked, messages=messages, stream=True)
several = litellm.completion(**asked, messages=messages, n=2, presence_penalty=0.5)
text = litellm.text_completion(
    **{**asked, "model": "text-completion-openai/tiny"}, prompt=prompt, logprobs=2
)
found = {
    "chat": whole.choices[0].message.content,
    "stream": "".join(piece.choices[0].delta.content or "" for piece in pieces),
    "usage": whole.usage.model_dump(),
    "several": [choice.message.content for choice in several.choices],
    "text": text.choices[0].text,
}
print(json.dumps(found))
