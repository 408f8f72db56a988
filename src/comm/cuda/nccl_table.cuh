// A table of the functions of NCCL in use: the library is opened on first use, and tests can substitute functions.
#pragma once

#include <nccl.h>

namespace trifold::cuda {

struct Nccl {
  decltype(ncclGetVersion)* version = nullptr;
  decltype(ncclGetErrorString)* text = nullptr;
  decltype(ncclGetLastError)* last_error = nullptr;
  decltype(ncclGetUniqueId)* unique_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommSplit)* split = nullptr;
  decltype(ncclCommGetAsyncError)* async_error = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclReduceScatter)* reduce_scatter = nullptr;
  decltype(ncclAllGather)* all_gather = nullptr;
  decltype(ncclBroadcast)* broadcast = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
};

// The functions of the library. Throws an Error that lists the folders searched.
const Nccl& nccl();

}  // namespace trifold::cuda
