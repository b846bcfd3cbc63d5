"""Drives a host with the openai package as its users do. The last line says that it was content."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="unused", max_retries=0)

models = [model.id for model in client.models.list()]
assert models == ["mock"], models

user = [{"role": "user", "content": "one two three"}]
whole = client.chat.completions.create(model="mock", messages=user)
assert whole.choices[0].message.content == "one two three", whole
assert whole.choices[0].finish_reason == "stop", whole
assert whole.usage.completion_tokens == 3, whole

stream = client.chat.completions.create(
    model="mock", messages=user, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "one two three", chunks
assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop", chunks
assert chunks[-1].usage.completion_tokens == 3, chunks
assert len({chunk.id for chunk in chunks}) == 1, chunks

done = client.completions.create(model="mock", prompt="a b c d", max_tokens=2)
assert (done.choices[0].text, done.choices[0].finish_reason) == ("a b", "length"), done
pieces = client.completions.create(model="mock", prompt="a b c", stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == "a b c"

for kwargs, expected, code in [
    ({"model": "gpt-9", "messages": user}, openai.NotFoundError, "model_not_found"),
    ({"model": "mock", "messages": []}, openai.BadRequestError, "empty_prompt"),
    ({"model": "mock", "messages": user, "n": 0}, openai.BadRequestError, "invalid_value"),
]:
    try:
        client.chat.completions.create(**kwargs)
    except expected as error:
        assert error.code == code, error
        assert error.request_id, error
    else:
        raise AssertionError(f"{kwargs} was answered")

order = {"submit_error": "backend"}
try:
    prompt = [{"role": "user", "content": f"x\n@mock {json.dumps(order)}"}]
    client.chat.completions.create(model="mock", messages=prompt, stream=True)
except openai.InternalServerError as error:
    assert error.code == "engine_error", error
else:
    raise AssertionError("a refused stream was answered")

order = {"repeat": 20000, "token_delay_ms": 20}
endless = [{"role": "user", "content": f"x\n@mock {json.dumps(order)}"}]
with client.chat.completions.create(model="mock", messages=endless, stream=True) as stream:
    seen = [chunk for chunk, _ in zip(stream, range(3))]
assert len(seen) == 3, seen
print("content")
