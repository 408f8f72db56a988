// RecordedHost: a communicator of the host that records its calls (record.h), for communicators over NCCL that are built
// on it.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "nccl_order/record.h"

namespace trifold::test {

// Where calls are recorded: functions of the module.
struct RecordPort {
  int (*comm)(const std::string* key, const std::vector<int>* world_ranks);
  void (*add)(int rank, const OrderEntry* entry);
};

// `world`: of this rank; must outlive the result.
std::unique_ptr<Communicator> recorded_host(Communicator& world, const RecordPort& port);

}  // namespace trifold::test
