// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "nccl_order/check.h"
#include "nccl_order/over_nccl.h"

namespace trifold::test {

// Checks the record of the last run over NCCL, of this many ranks, and returns it. Nothing may deadlock even if every
// collective blocked the host.
inline OrderRecord expect_ordered(int ranks) {
  OrderRecord record = take_record();
  EXPECT_EQ(record.ranks.size(), static_cast<size_t>(ranks));
  for (const auto& entries : record.ranks)
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [](const OrderEntry& entry) {
      return entry.kind == OrderEntry::Kind::Collective || entry.kind == OrderEntry::Kind::Messages;
    })) << "a rank called nothing of NCCL's";
  for (const std::string& problem : order_problems(record, Blocking::EveryCollective))
    ADD_FAILURE() << problem;
  return record;
}

}  // namespace trifold::test
