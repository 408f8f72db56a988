#include "conformance/communicator.h"

namespace trifold::test {
namespace {

template <int kRanks>
struct ThreadRanks {
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout) {
    const auto stop_at_failure = [&](Communicator& comm) {
      rank_main(comm);
      if (::testing::Test::HasFailure()) fail("an expectation was not met");  // wakes the other ranks
    };
    run_ranks(kRanks, stop_at_failure, {.timeout = timeout});
  }
};

using Hosts = ::testing::Types<ThreadRanks<1>, ThreadRanks<2>, ThreadRanks<3>, ThreadRanks<4>>;

struct HostNames {
  template <class Host>
  static std::string GetName(int index) {
    return std::to_string(index + 1) + "ranks";
  }
};

INSTANTIATE_COMMUNICATOR_CONFORMANCE(Thread, Hosts, HostNames);

}  // namespace
}  // namespace trifold::test
