#include "parity/reshard.h"

namespace trifold::test {
namespace {

// Every pair of layouts on up to 8 ranks, and of those on 16 with each other and with three of the others.
TEST_F(Reshard, WholeMatrix) {
  const PretrainConfig base = run();
  const Curve whole = train(config_of({1, 1, 1}, base));
  std::vector<ReshardLayout> all = layouts_of_8();
  const size_t small = all.size();
  all.insert(all.end(), layouts_of_16().begin(), layouts_of_16().end());
  int pairs = 0;
  for (size_t from = 0; from < all.size(); ++from)
    for (size_t to = 0; to < all.size(); ++to) {
      const bool large = from >= small || to >= small;
      if (from == to || (large && std::min(from, to) > 2 && std::min(from, to) < small)) continue;
      SCOPED_TRACE(name_of(all[from]) + " -> " + name_of(all[to]));
      check_pair(saved_on(all[from], base), all[to], base, whole, 2e-5);
      ++pairs;
    }
  EXPECT_GE(pairs, 40);
}

}  // namespace
}  // namespace trifold::test
