"""langchain-openai: python langchain_client.py ADDRESS PROMPT prints its replies as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI, OpenAI

address, prompt = sys.argv[1:]
asked: dict[str, Any] = {
    "model": "tiny",
    "base_url": f"{address}/v1",
    "api_key": "none",
    "temperature": 0,
    "max_retries": 0,
}
chat = ChatOpenAI(**asked, max_tokens=20)
messages = [("system", "word2 word4"), ("human", prompt)]
scored = chat.bind(logprobs=True, top_logprobs=2).invoke(messages)
responses = ChatOpenAI(**asked, max_tokens=20, use_responses_api=True)
found = {
    "chat": chat.invoke(messages).content,
    "stream": "".join(str(piece.content) for piece in chat.stream(messages)),
    "usage": chat.invoke(messages).usage_metadata,
    "logprobs": len(scored.response_metadata["logprobs"]["content"]),
    "responses": responses.invoke(messages).text,
    "responses stream": "".join(piece.text for piece in responses.stream(messages)),
    "text": OpenAI(**asked, max_tokens=20).invoke(prompt),
}
print(json.dumps(found))
