// Shared by the tests of rules: a configuration without a problem, and changes to it that each cause one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {

inline PretrainConfig sound() {
  PretrainConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 64;
  config.batch.micro_batch_size = 4;
  config.batch.train_iters = 100;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  return config;
}

struct ValidateCase {
  const char* expected;  // part of the one problem that is reported
  std::function<void(PretrainConfig&)> change;
};

// Expects each change to cause one problem, with the expected text and the options that it is about.
inline void expect_reported(const std::vector<ValidateCase>& cases) {
  for (const ValidateCase& test : cases) {
    PretrainConfig config = sound();
    test.change(config);
    const Words list = texts_of(problems(config));
    ASSERT_EQ(list.size(), 1u) << test.expected << "\n" << testing::PrintToString(list);
    expect_contains(list[0], test.expected);
    expect_whole(config);
  }
}

}  // namespace trifold
