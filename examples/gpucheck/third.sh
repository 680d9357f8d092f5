#!/usr/bin/env bash
# Third: how fast is it, beside PyTorch? At most ten minutes on a GPU, with nothing else
# on it. It writes $OUT/third.log and $OUT/torch.json, PyTorch's times.
. "$(dirname "$0")/common.sh"
{
  bin/gpucheck $small -specs >"$out/specs.json"
  peer="$python docs/benchmarks/peers/torch_cuda.py $out/specs.json --out $out/torch.json $(real "" "--device cpu --rows small-mlp,lstm --seconds 0.001")"
  if [ -n "${TORCH:-}" ] || [ -z "$small" ]; then # eager of all rows first
    step 110 $peer --modes eager --policies mixed_float16,float32
    if_real step 200 $peer --modes reduce-overhead --policies mixed_float16
  fi
  steps="bin/gpucheck $small -only steps -least 100ms -limit 60s -torch $out/torch.json"
  step 170 $steps -policies mixed_float16 -rows "$(real "" small-mlp,lstm)"
  if_real step 30 MEZZO_TF32=0 $steps -rows mlp -policies float32
  if_real step 30 MEZZO_TF32=1 $steps -rows mlp,small-mlp -policies float32
  if_real step 40 $steps -rows mlp -policies mixed_bfloat16,mixed_float8
  printf '\n== [%d s] done\n' "$SECONDS"
} 2>&1 | tee "$out/third.log"
