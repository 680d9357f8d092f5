#!/usr/bin/env bash
# First: is it right? At most ten minutes on a GPU. It writes $OUT/first.log (default: gpu/).
. "$(dirname "$0")/common.sh"
{
  if_real nvidia-smi
  if_real "$python" -c 'import torch; print("torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
  step 60 bin/gpucheck -only inventory
  step 60 bin/cuda.test -test.v -test.run '^Test(Registered|CopyFrom|Start|Capture|Unpin|SumsInFloat32)$'
  # The whole suite, a process for each operation.
  step 240 bin/gpucheck -only conformance -parallel "$(real 8 2)" -limit 100s -cases "$(real "" Softmax/float16,Gather/float32,Iota)"
  step 100 bin/cuda.test -test.run "$(real '^Test(Product|Padding|Attention|Together|LibraryConvolution|WideGradients|ReluKeepsNaN|ConvolutionReluKeepsNaN|Eight)$' '^TestReluKeepsNaN$')"
  step 60 bin/gpucheck $small -only curves -limit 30s -policies "$(real float32,mixed_float16,mixed_bfloat16 mixed_float16)"
  # The same with Mezzo's products and convolutions instead of the libraries'.
  step 60 MEZZO_CUDA_LIBS=- bin/gpucheck -only conformance -parallel "$(real 8 2)" -limit 60s -cases "$(real MatMul,Conv,RNN MatMul/float16/empty)"
  if_real step 60 MEZZO_CUDA_LIBS=- bin/cuda.test -test.run '^TestConvolution$'
  # What may hang or spoil the context comes last.
  step 40 bin/cuda.test -test.v -test.run '^Test(LateFault|OutOfMemory)$'
  printf '\n== [%d s] done\n' "$SECONDS"
} 2>&1 | tee "$out/first.log"
