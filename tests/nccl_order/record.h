// OrderRecord: what the ranks of a run asked of NCCL, of the host's communicators and of their streams, in order. The
// module of this folder writes it, `order_problems` (check.h) reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trifold::test {

struct OrderMessage {
  bool sends = false;
  int peer = 0;  // rank in the communicator
  int64_t count = 0;
  std::string type;
};

struct OrderEntry {
  enum class Kind {
    Collective,  // of NCCL, on a stream
    Messages,    // of NCCL, one group, on a stream
    HostCall,  // blocks the host until all ranks have come: a call of the host's communicators, or one that makes
               // communicators of NCCL
    HostMessages,  // blocks the host until every peer has come
    StreamWait,    // `stream` waits for `other`
    HostWait,      // the host waits for `other`
  };
  Kind kind = Kind::Collective;
  int thread = 0;         // of its rank; 0 is the first that made a call
  int comm = -1;          // index in OrderRecord::comms
  std::string operation;  // "all_reduce(sum)"
  int64_t count = 0;
  std::string type;
  int root = -1;
  int stream = -1;  // of its rank
  std::vector<OrderMessage> messages;
  int other = -1;
  int64_t until = 0;  // of its rank's entries on `other`, those before this one are waited for
};

// "all_reduce(sum) of 4 f32", "messages to 2 and from 0"
std::string to_string(const OrderEntry& entry);

struct OrderComm {
  std::string name;              // "nccl 3", "host 0"
  std::vector<int> world_ranks;  // by rank
};

struct OrderRecord {
  std::vector<std::vector<OrderEntry>> ranks;  // by world rank
  std::vector<OrderComm> comms;
};

}  // namespace trifold::test
