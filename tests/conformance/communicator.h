// The contract of Communicator, one test per clause, for every back end.
//
// A back end instantiates the suite with a host: a default-constructible type with
//   void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout)
// which calls rank_main on every rank of a fresh world (all of them in this process, or the one this process
// is), and throws what a rank threw. A clause does not depend on the number of ranks; those that need two
// skip with one.
#pragma once

#include "conformance/collectives.h"
#include "conformance/exchanges.h"
#include "conformance/failures.h"

// All suites for the hosts `...`, as gtest's INSTANTIATE_TYPED_TEST_SUITE_P takes them.
#define INSTANTIATE_COMMUNICATOR_CONFORMANCE(prefix, ...)                     \
  INSTANTIATE_TYPED_TEST_SUITE_P(prefix, CollectiveConformance, __VA_ARGS__); \
  INSTANTIATE_TYPED_TEST_SUITE_P(prefix, ExchangeConformance, __VA_ARGS__);   \
  INSTANTIATE_TYPED_TEST_SUITE_P(prefix, FailureConformance, __VA_ARGS__)
