#include "comm/cuda/nccl_table.cuh"

#include "core/cuda/library.h"

namespace trifold::cuda {

namespace {

Nccl open_nccl() {
  const Library library("libnccl.so.2", "NCCL");
  Nccl table;
  library.find("ncclGetVersion", &table.version);
  library.find("ncclGetErrorString", &table.text);
  library.find("ncclGetLastError", &table.last_error);
  library.find("ncclGetUniqueId", &table.unique_id);
  library.find("ncclCommInitRankConfig", &table.init);
  library.find("ncclCommSplit", &table.split);
  library.find("ncclCommGetAsyncError", &table.async_error);
  library.find("ncclCommAbort", &table.abort);
  library.find("ncclGroupStart", &table.group_start);
  library.find("ncclGroupEnd", &table.group_end);
  library.find("ncclAllReduce", &table.all_reduce);
  library.find("ncclReduceScatter", &table.reduce_scatter);
  library.find("ncclAllGather", &table.all_gather);
  library.find("ncclBroadcast", &table.broadcast);
  library.find("ncclSend", &table.send);
  library.find("ncclRecv", &table.receive);
  return table;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl kNccl = open_nccl();
  return kNccl;
}

}  // namespace trifold::cuda
