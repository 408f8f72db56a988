# shellcheck shell=bash
# Finds NVIDIA's libraries, for tests/gpu.sh. Sourcing it exports the folders in which programs look.

# cuBLASLt, cuDNN and NCCL often come as wheels with PyTorch: their folders follow the toolkit's. cuDNN looks for NVRTC
# where the system's loader does.
wheels=$(python3 - 2>/dev/null <<'PY'
import glob, sysconfig
site = sysconfig.get_paths()["purelib"]
print(*glob.glob(site + "/nvidia/*"), site + "/torch")
PY
)
for wheel in $wheels; do
  if [[ -d $wheel/lib ]]; then
    TRIFOLD_CUDA_LIBRARY_PATH=${TRIFOLD_CUDA_LIBRARY_PATH:-/usr/local/cuda/lib64}:$wheel/lib
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheel/lib
  fi
  if [[ -d $wheel/include ]]; then export CMAKE_INCLUDE_PATH=${CMAKE_INCLUDE_PATH:+$CMAKE_INCLUDE_PATH:}$wheel/include; fi
done
if [[ -n ${TRIFOLD_CUDA_LIBRARY_PATH:-} ]]; then export TRIFOLD_CUDA_LIBRARY_PATH LD_LIBRARY_PATH; fi
export PATH=$PATH:/usr/local/cuda/bin  # compute-sanitizer, ncu, nvcc

# Prints the location of each of NVIDIA's libraries that the module opens; returns 1 if one is not found.
libraries() {
  local name folder found status=0 names
  names=$(cat nvidia.libraries 2>/dev/null) || names="libcublasLt.so.[0-9]* libcudnn.so.[0-9]* libnccl.so.[0-9]*"
  for name in libcuda.so.1 $names; do
    found=
    while IFS= read -r folder; do
      [[ -n $found || -z $folder ]] || found=$(compgen -G "$folder/$name" | head -n 1)
    done < <(tr : '\n' <<<"${TRIFOLD_CUDA_LIBRARY_PATH:-}:/usr/local/cuda/lib64")
    [[ -n $found ]] || found=$(ldconfig -p 2>/dev/null | sed -n "s|.*=> \(.*/${name//./\\.}\)$|\1|p" | head -n 1)
    echo "$name: ${found:-missing}"
    [[ -n $found ]] || status=1
  done
  return "$status"
}
