#!/usr/bin/env bash
# Second: what does it cost? At most ten minutes on a GPU. It writes $OUT/second.log.
. "$(dirname "$0")/common.sh"
kernels='max_pool|scatter_add|reduce|normalize_grad|attention|collect|distribute'
{
  step 170 bin/gpucheck $small -only seeds -least 50ms -limit 40s -rows "$(real "" cnn-b2)"
  step 80 bin/gpucheck $small -only ops -least 50ms -limit 20s -policies mixed_float16 -rows "$(real "" "copy,softmax")"
  step 70 bin/gpucheck $small -only ops -least 50ms -limit 20s -policies float32 -rows "$(real "" transpose)"
  bench=$(real 'Products/.*float16' 'Products/float16/.*1024$')
  if_real step 45 bin/cuda.test -test.run '^$' -test.bench "$bench" -test.benchtime 30ms
  if_real step 45 MEZZO_CUDA_LIBS=- bin/cuda.test -test.run '^$' -test.bench "$bench" -test.benchtime 30ms
  if_real step 90 MEZZO_CUDA_GRAPHS=0 ncu --clock-control none --set basic -k "regex:$kernels" -c 30 \
    bin/gpucheck -child '{"Kind":"step","Name":"bert","Policy":"mixed_float16"}'
  if_real step 60 compute-sanitizer --tool racecheck bin/cuda.test -test.run '^TestConvolution$/^.*$/^.*$/^.*$/^image$'
  if_real step 60 compute-sanitizer --tool memcheck bin/cuda.test -test.run '^Test(Attention|Capture|Start)$'
  printf '\n== [%d s] done\n' "$SECONDS"
} 2>&1 | tee "$out/second.log"
