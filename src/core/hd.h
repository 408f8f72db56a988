// HD marks a function that both the host and a CUDA device may call; to a host compiler it says nothing.
#pragma once

#if defined(__CUDACC__)
#define HD __host__ __device__
#else
#define HD
#endif
