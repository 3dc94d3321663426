#!/bin/sh
# Answers as the CUDA toolkit of the rented machine's image would.
. "${0%/*}/gpu.env"
case $1 in
    --version | -V)
        echo "nvcc: NVIDIA (R) Cuda compiler driver"
        echo "Copyright (c) 2005-2024 NVIDIA Corporation"
        echo "Built on Thu_Mar_28_02:18:24_PDT_2024"
        echo "Cuda compilation tools, release $GPU_CUDA, V$GPU_CUDA.131"
        echo "Build cuda_$GPU_CUDA.r$GPU_CUDA/compiler.0_0"
        ;;
    *)
        echo "nvcc fatal   : the simulated machine has no compiler" >&2
        exit 1
        ;;
esac
