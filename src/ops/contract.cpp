// The table of checks.
#include "ops/contract.h"

namespace trifold::contract {

const OpTable& checks() {
  static const OpTable kTable = [] {
    OpTable checks{};
    checks.name = "of checks";
    add_elementwise(checks);
    add_experts(checks);
    add_latent(checks);
    add_optimizer(checks);
    add_products(checks);
    add_recommender(checks);
    add_rows(checks);
    add_strided(checks);
    return checks;
  }();
  return kTable;
}

}  // namespace trifold::contract
