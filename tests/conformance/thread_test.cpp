#include "conformance/communicator.h"

namespace trifold::test {
namespace {

template <int kRanks>
struct ThreadRanks {
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout) {
    run_ranks(kRanks, rank_main, {.timeout = timeout});
  }
};

using Hosts = ::testing::Types<ThreadRanks<1>, ThreadRanks<2>, ThreadRanks<3>, ThreadRanks<4>>;

struct HostNames {
  template <class Host>
  static std::string GetName(int index) {
    return std::to_string(index + 1) + "ranks";
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommunicatorConformance, Hosts, HostNames);

}  // namespace
}  // namespace trifold::test
