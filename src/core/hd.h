// HD marks a function callable from both the host and a CUDA device; for a host compiler it is empty.
#pragma once

#if defined(__CUDACC__)
#define HD __host__ __device__
#else
#define HD
#endif
