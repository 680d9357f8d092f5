# CUDA's header, compilers and assemblers, from the package index, and the variables that name
# them to the tests: `. .ci/cuda.sh` after common.sh.
at=$(mktemp -d)
trap 'rm -r "$at"' EXIT
needs g++ g++ && needs pip3 python3-pip && pip3 download -q --no-deps -d "$at" \
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvrtc-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89 \
  nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37 ||
  { echo "no g++, or no package index: CUDA needs both; left out"; exit; }
for wheel in "$at"/*.whl; do python3 -m zipfile -e "$wheel" "$at"; done
chmod +x "$at/nvidia/cuda_nvcc/bin/ptxas" "$at/nvidia/cu13/bin/"*
export CGO_ENABLED=1 CGO_CFLAGS="-I$at/nvidia/cuda_runtime/include"
export MEZZO_NVRTC="$at/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2" MEZZO_PTXAS="$at/nvidia/cuda_nvcc/bin/ptxas"
export MEZZO_PTXAS_NEWEST="$at/nvidia/cu13/bin/ptxas" MEZZO_NVDISASM="$at/nvidia/cu13/bin/nvdisasm"
