"""Writes small random-initialized checkpoints and what transformers computes with them.

python models.py DIR [--large]

DIR/bert, DIR/distilbert, DIR/distilbert_mlm, DIR/gpt2 are in Hugging Face's layout, without tokenizers.
expected.safetensors in each has the inputs and the results, and under NAME/bfloat16 and
NAME/float16 those of torch.autocast. --large makes more realistic sizes.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, DistilBertModel, GPT2Config,
                          GPT2LMHeadModel)
from transformers.models.bert.modeling_bert import BertPooler

out = sys.argv[1]
large = "--large" in sys.argv
hidden, heads, inner, layers, vocab, positions = (256, 4, 1024, 4, 2000, 128) if large else (24, 3, 40, 2, 96, 32)
spread = 0.05 if large else 0.15 # of random weights
torch.manual_seed(1)


def shake(model):
    """Weights that no initializer leaves at 0 or 1, so that each of them matters."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)
    return model.eval()


def under_autocast(f):
    """The results of f, and those in 16 bits."""
    all = f()
    for dtype in [torch.bfloat16, torch.float16]:
        with torch.autocast("cpu", dtype):
            all |= {f"{k}/{str(dtype).removeprefix('torch.')}": v.float() for k, v in f().items() if not k.startswith("hidden_")}
    return all


def write(name, model, inputs, results):
    at = os.path.join(out, name)
    model.save_pretrained(at)
    save_file({k: v.clone().contiguous() for k, v in (inputs | results).items()}, os.path.join(at, "expected.safetensors"))
    for extra in ["generation_config.json"]:
        if os.path.exists(os.path.join(at, extra)):
            os.remove(os.path.join(at, extra))


steps = 24 if large else 11
ids = torch.randint(0, vocab, (3, steps))
segments = (torch.arange(steps)[None, :] >= torch.tensor([steps // 3, steps // 2, steps])[:, None]).long()
mask = (torch.arange(steps)[None, :] < torch.tensor([steps, steps - 4, 3])[:, None]).long()
inputs = {"token_ids": ids.int(), "segment_ids": segments.int(), "padding_mask": mask.int()}

with torch.no_grad():
    m = shake(BertForMaskedLM(BertConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                         intermediate_size=inner, max_position_embeddings=positions, initializer_range=spread)))
    m.bert.pooler = BertPooler(m.config)
    m.bert.pooler.dense.weight.data.normal_(0, spread)

    def bert():
        r = m.bert(input_ids=ids, token_type_ids=segments, attention_mask=mask, output_hidden_states=True)
        results = {f"hidden_{i}": h for i, h in enumerate(r.hidden_states)}
        return results | {"sequence_output": r.last_hidden_state, "pooled_output": r.pooler_output, "logits": m.cls(r.last_hidden_state)}

    write("bert", m, inputs, under_autocast(bert))

    m = shake(DistilBertModel(DistilBertConfig(vocab_size=vocab, dim=hidden, n_layers=layers, n_heads=heads, hidden_dim=inner,
                                               max_position_embeddings=positions, initializer_range=spread)))
    write("distilbert", m, inputs, under_autocast(lambda: {"sequence_output": m(input_ids=ids, attention_mask=mask).last_hidden_state}))

    m = shake(GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_embd=hidden, n_layer=layers, n_head=heads, n_inner=inner,
                                         n_positions=positions, initializer_range=spread, bos_token_id=0, eos_token_id=0)))

    def gpt2():
        h = m.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        return {"sequence_output": h, "logits": m.lm_head(h)}

    results = under_autocast(gpt2)
    prompt = ids[:1, :5]
    new = positions - 6
    greedy = m.generate(prompt, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
    write("gpt2", m, inputs, results | {"prompt": prompt.int(), "greedy": greedy.int()})

    m = shake(DistilBertForMaskedLM(DistilBertConfig(vocab_size=vocab, dim=hidden, n_layers=layers, n_heads=heads, hidden_dim=inner,
                                                     max_position_embeddings=positions, initializer_range=spread)))
    write("distilbert_mlm", m, inputs, under_autocast(lambda: {"logits": m(input_ids=ids, attention_mask=mask).logits}))
