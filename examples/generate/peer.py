"""Prints tokens per second of transformers: python - TOKENS LAYERS DTYPE PROMPT."""
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

logging.set_verbosity_error()
tokens, layers, dtype, prompt = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]), int(sys.argv[4])
model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval().to(dtype)
text = torch.tensor([[1000 + 37 * i for i in range(prompt)]])
generate = lambda n: model.generate(text, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=50256)
best = 0.0
with torch.no_grad():
    generate(2)
    for _ in range(3):
        start = time.perf_counter()
        generate(1)
        first = time.perf_counter()
        generate(tokens)
        # Without the prompt and the first token.
        best = max(best, (tokens - 1) / (time.perf_counter() - first - (first - start)))
print(best)
